"""A reader that never stops, as a process of its own: resolves every dataset's name and loads what it finds there.

Run as ``python -m tests.support.reader``; reads a JSON line from standard input that says where (``database``,
``warehouse``, ``catalog``: properties for pyiceberg), ends at the next line, and prints one JSON line: reads done,
violations seen.

A read is a violation when the name does not load a table with the dataset's uuid although the resolver names it
before the read *and* after it: a name that changed in between was left by the time it was asked for.
"""

from __future__ import annotations

import json
import select
import sys
from typing import TYPE_CHECKING, Any

import psycopg
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_RESOLVE = """
SELECT d.id::text, reroot.table_identifier(d.id), m.table_uuid
FROM datasets d JOIN reroot.moves m ON m.dataset_id = d.id::text
WHERE m.table_uuid IS NOT NULL AND m.updated_at > now() - interval '20 seconds'
"""
_AGAIN = "SELECT reroot.table_identifier(id) FROM datasets WHERE id::text = %s"


def main() -> None:
    where = json.loads(sys.stdin.readline())
    catalog: Catalog = (RestCatalog if "auth" in where["catalog"] else SqlCatalog)(
        where["warehouse"], **where["catalog"]
    )
    reads, violations = 0, []
    with psycopg.connect(where["database"], autocommit=True) as connection:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while not select.select([sys.stdin], [], [], 0)[0]:
            for dataset, identifier, table_uuid in connection.execute(_RESOLVE).fetchall():
                found = _read(catalog, identifier)
                reads += 1
                if found == table_uuid:
                    continue
                row = connection.execute(_AGAIN, (dataset,)).fetchone()
                if row is not None and row[0] == identifier:
                    violations.append([dataset, identifier, found])
    json.dump({"reads": reads, "violations": violations}, sys.stdout)


def _read(catalog: Catalog, identifier: str) -> Any:
    try:
        table = catalog.load_table(identifier)
    except Exception as error:  # noqa: BLE001 - whatever stops a reader is what is looked for
        return repr(error)
    return str(table.metadata.table_uuid)


if __name__ == "__main__":
    main()
