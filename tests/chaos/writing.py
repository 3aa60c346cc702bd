"""A writer that never stops, ``python -m tests.chaos.writing ORDERS``: appends to tables and notes each promise.

``locking``: a program of the control plane, which holds the dataset's lock, asks the resolver and writes its log row.
Otherwise an engine: it keeps a name that it resolved for a moment and commits through it, with no lock.

A commit is acknowledged when the catalog has said yes. From then on its snapshot and its files must be found again,
with the same bytes.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import psycopg
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, RESTError

from tests.chaos.files import digest, path_of
from tests.chaos.traffic import RESOLVE, ordered
from tests.support.tables import rows_from

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tests.chaos.traffic import Ways

_ROWS: Final = 5
_HELD: Final = 3.0
"""Seconds for which an engine may keep a name: shorter than the grace."""
_ABOUT_TO_MOVE: Final = b"SELECT dataset_id FROM reroot.moves WHERE state = 'queued'"
_LOG: Final = b"""
INSERT INTO iceberg_sync_log (dataset_id, mode, status, iceberg_table, snapshot_id, started_at, finished_at)
VALUES (%s, 'sync.append', 'succeeded', %s, %s, now(), now())
"""


def main() -> None:
    ways = ordered()
    datasets = sorted(ways.orders.uuids)
    while not ways.over:
        try:
            if ways.orders.locking:
                _under_the_lock(ways, ways.chance.choice(datasets))
            else:
                _through_a_held_name(ways, ways.chance.choice(_about_to_move(ways) or datasets))
        except psycopg.errors.LockNotAvailable:
            ways.counts["lock held"] += 1
        except psycopg.Error:
            ways.counts["control plane away"] += 1
            ways.broken()
        except NoSuchTableError:
            # By rename this is the window, and for an engine a name that was left.
            ways.counts["not there"] += 1
        except (CommitFailedException, CommitStateUnknownException):
            ways.counts["not acknowledged"] += 1
        except RESTError as error:
            if not str(error).startswith("NoSuchTableException"):  # what a commit says of a name that was left
                raise
            ways.counts["not there"] += 1
        ways.rest()
    ways.close()


def _under_the_lock(ways: Ways, dataset: str) -> None:
    with ways.connection().transaction():
        connection = ways.connection()
        connection.execute("SET LOCAL lock_timeout = '3s'")
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (dataset,))
        row = connection.execute(RESOLVE, (dataset,)).fetchone()
        assert row is not None
        table = ways.catalog.load_table(row[0])
        _append(ways, dataset, row[0], table)
        connection.execute(_LOG, (dataset, row[0], table.metadata.current_snapshot_id))


def _about_to_move(ways: Ways) -> list[str]:
    """Those of its datasets whose names are most likely to be left while the engine holds them."""
    queued = {str(row[0]) for row in ways.connection().execute(_ABOUT_TO_MOVE).fetchall()}
    return sorted(queued & set(ways.orders.uuids))


def _through_a_held_name(ways: Ways, dataset: str) -> None:
    name = ways.resolve(dataset)
    table = ways.catalog.load_table(name)
    time.sleep(ways.chance.uniform(0.0, _HELD))
    _append(ways, dataset, name, table)


def _append(ways: Ways, dataset: str, name: str, table: Table) -> None:
    table.append(rows_from(1_000_000 + ways.counts["acknowledged"] * _ROWS, _ROWS))
    ways.counts["acknowledged"] += 1
    snapshot = table.current_snapshot()
    assert snapshot is not None
    files = {path: digest(path) for path in _new_files(table)}
    ways.tell(kind="commit", dataset=dataset, name=name, snapshot=snapshot.snapshot_id, files=files)


def _new_files(table: Table) -> list[str]:
    """What the last commit added: metadata, manifest list, manifests, data."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    own = [one for one in snapshot.manifests(table.io) if one.added_snapshot_id == snapshot.snapshot_id]
    data = [entry.data_file.file_path for one in own for entry in one.fetch_manifest_entry(table.io)]
    found = [table.metadata_location, snapshot.manifest_list, *(one.manifest_path for one in own), *data]
    return [path_of(location) for location in found]


if __name__ == "__main__":
    main()
