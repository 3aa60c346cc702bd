"""An independent witness: DuckDB reads the rows, SHA-256 reads the files. No pyiceberg, no Reroot.

Responsible for: what a reader finds under a dataset's name (asked of the catalog's own table and of the resolver in
SQL), a fingerprint of all rows, and the listing of every file with its digest.
Must not know: how tables are moved.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import duckdb
import psycopg

from demo.population import warehouse_name
from demo.processes import ServiceError
from demo.services import packaged

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from demo.population import Born

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """What a reader finds: the rows' number and a fingerprint that does not depend on their order."""

    identifier: str
    metadata_location: str
    rows: int
    fingerprint: str


class Reader:
    """DuckDB with its Iceberg extension from a package: offline, in memory."""

    def __init__(self) -> None:
        self._duckdb = duckdb.connect(config={"threads": "2"})
        for extension in ("avro", "iceberg"):
            self._duckdb.execute(f"LOAD '{_extension(extension)}'")
        self._duckdb.execute("SET enable_progress_bar = false")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._duckdb.close()

    def rows(self, metadata_location: str) -> tuple[int, str]:
        """Count and fingerprint of every row of the table whose metadata file this is."""
        quoted = metadata_location.removeprefix("file://").replace("'", "''")
        # bit_xor alone would not see a row that appears twice; the sum does.
        statement = f"SELECT count(*), bit_xor(hash(t)), sum(hash(t)::HUGEINT) FROM iceberg_scan('{quoted}') t"
        row = self._duckdb.execute(statement).fetchone()
        count, mixed, total = row or (0, None, None)
        return int(count), f"{mixed or 0:x}-{total or 0:x}"


def look(control_plane_url: str, catalog_url: str, datasets: Iterable[Born], reader: Reader) -> dict[str, Found]:
    """What a reader finds for each dataset under the name that the resolver gives now."""
    found: dict[str, Found] = {}
    with psycopg.connect(control_plane_url) as control_plane, psycopg.connect(catalog_url) as catalog:
        for one in datasets:
            resolved = control_plane.execute("SELECT reroot.table_identifier(%s::uuid)", (one.dataset_id,)).fetchone()
            identifier = str(resolved[0]) if resolved else ""
            namespace, _, name = identifier.rpartition(".")
            row = catalog.execute(
                "SELECT metadata_location FROM iceberg_tables"
                " WHERE catalog_name = %s AND table_namespace = %s AND table_name = %s",
                (warehouse_name(one.workspace_id), namespace, name),
            ).fetchone()
            if row is None:
                raise ServiceError(f"{identifier}: the catalog has no such table")
            found[one.dataset_id] = Found(identifier, str(row[0]), *reader.rows(str(row[0])))
    return found


def listing(folder: Path) -> dict[str, str]:
    """Every file below ``folder``, with the SHA-256 of its bytes."""
    return {str(path.relative_to(folder)): _digest(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _extension(name: str) -> str:
    folder = packaged(f"duckdb_extension_{name}", "extensions", f"v{duckdb.__version__}")
    return str(folder / f"{name}.duckdb_extension").replace("'", "''")
