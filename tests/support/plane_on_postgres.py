"""The control plane in Postgres as its contract arranges and reads it.

Time passes by moving every time that is written into the past.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row

from demo.processes import wait_until
from tests.support.doorbell_double import DoorbellDouble
from tests.support.plane_subjects import NAME, PLACE, SNAPSHOT, PlaneSubject, Written
from tests.support.twins import REPUBLISH_AFTER, WAREHOUSE
from worker.controlplane import operations, reversal, warehouses
from worker.controlplane.connection import Connection, connect
from worker.controlplane.ledger import PostgresControlPlane
from worker.controlplane.topup import top_up
from worker.messages import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.controlplane import ControlPlaneFixture
    from worker.moves.ports import ControlPlane, Strategy

_ROW = """
SELECT state, direction, claim, attempts, busy_count, busy_since IS NOT NULL AS busy,
       extract(epoch FROM not_before - clock_timestamp())::float8 AS due_in, attempt_started_at IS NOT NULL AS running,
       published_at IS NOT NULL AS published, target_namespace, table_uuid, old_location, old_sequence_number, given_up,
       flipped_at IS NOT NULL AS flipped, park_code
FROM reroot.moves WHERE dataset_id = %s
"""
_TIMES = ("not_before", "published_at", "attempt_started_at", "resolver_changed_at", "flipped_at", "busy_since")


class PostgresSubject(PlaneSubject):
    """The real thing."""

    def __init__(self, url: str, control_plane: ControlPlaneFixture) -> None:
        self._url, self._given = url, control_plane
        self._adapters: list[PostgresControlPlane] = []
        self._operator: Connection = connect(url, role="operator")
        self._workspace = control_plane.workspace()
        self._schema = control_plane.schema(control_plane.catalog(self._workspace, "Sales"), "Europe")

    def close(self) -> None:
        """Close every connection."""
        self._operator.close()
        for adapter in self._adapters:
            adapter.disconnect()

    def adapter(self, worker: str = "worker-1", *, attempt_seconds: float = 60) -> ControlPlane:
        adapter = PostgresControlPlane(
            self._url, worker=worker, warehouse_for=lambda _: WAREHOUSE, attempt_seconds=attempt_seconds
        )
        self._adapters.append(adapter)
        return adapter

    def dataset(self) -> str:
        dataset = self._given.dataset(self._workspace, self._schema)
        self.add_log(dataset, f"datasets.{NAME}", SNAPSHOT)
        self._given.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
            " VALUES (%s, %s, %s, %s, %s)",
            (dataset, self._workspace, f"datasets.{NAME}", NAME, PLACE),
        )
        return dataset

    def row(self, dataset: str) -> Written:
        with psycopg.connect(self._url, row_factory=dict_row) as connection:
            found: dict[str, Any] | None = connection.execute(_ROW, (dataset,)).fetchone()
        assert found is not None
        return Written(**found)

    def transitions(self, dataset: str) -> list[tuple[str, str | None, str]]:
        return [
            (row[0], row[1], row[2])
            for row in self._given.execute(
                "SELECT transition, from_state, to_state FROM reroot.move_events"
                " WHERE dataset_id = %s AND transition IS NOT NULL ORDER BY id",
                (dataset,),
            )
        ]

    def entries(self, dataset: str) -> list[tuple[str, str | None]]:
        rows = self._given.execute(
            "SELECT action, outcome FROM reroot.pointers WHERE dataset_id = %s ORDER BY id", (dataset,)
        )
        return [(row[0], row[1]) for row in rows]

    def column(self, dataset: str) -> str | None:
        return self._given.iceberg_namespace(dataset)

    def set_column(self, dataset: str, namespace: str | None) -> None:
        self._given.execute("UPDATE datasets SET iceberg_namespace = %s WHERE id::text = %s", (namespace, dataset))

    def logged(self, dataset: str) -> list[str]:
        return self._given.logged_identifiers(dataset)

    def add_log(self, dataset: str, identifier: str, snapshot: int) -> None:
        self._given.log(dataset, iceberg_table=identifier, snapshot_id=snapshot)

    def take_schema(self, dataset: str) -> None:
        self._given.execute("UPDATE datasets SET schema_id = NULL WHERE id::text = %s", (dataset,))

    def delete(self, dataset: str) -> None:
        self._given.execute("DELETE FROM iceberg_sync_log WHERE dataset_id::text = %s", (dataset,))
        self._given.execute("DELETE FROM datasets WHERE id::text = %s", (dataset,))

    @contextmanager
    def holding(self, dataset: str, *, rows_of: str | None = None) -> Iterator[None]:
        key = "id" if rows_of == "datasets" else "dataset_id"
        with psycopg.connect(self._url) as other:
            if rows_of is None:
                other.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (dataset,))
            else:
                other.execute(f"SELECT 1 FROM {rows_of} WHERE {key}::text = %s FOR UPDATE".encode(), (dataset,))
            yield
            other.rollback()

    def locked(self, dataset: str) -> bool:
        taken = self._given.execute("SELECT pg_try_advisory_lock(hashtext(%s))", (dataset,))[0][0]
        if taken:
            self._given.execute("SELECT pg_advisory_unlock(hashtext(%s))", (dataset,))
        return not taken

    def cut(self, dataset: str) -> None:
        self._given.execute(
            "SELECT pg_terminate_backend(l.pid, 10000) FROM pg_locks l"
            " WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database"
            " WHERE datname = current_database()) AND (classid::bigint << 32) | objid::bigint"
            " = hashtext(%s)::bigint",
            (dataset,),
        )
        assert not self.locked(dataset)

    def wait_for_idle_end(self, dataset: str) -> None:
        wait_until(lambda: not self.locked(dataset), seconds=10, what="the server ended the lock's transaction")

    def pass_time(self, seconds: float) -> None:
        moved = ", ".join(f"{column} = {column} - make_interval(secs => %(s)s)" for column in _TIMES)
        with psycopg.connect(self._url) as connection:
            connection.execute(f"UPDATE reroot.moves SET {moved}".encode(), {"s": seconds})
            connection.execute(
                "UPDATE reroot.warehouses SET down_until = down_until - make_interval(secs => %s)", (seconds,)
            )

    def sweep(self, dataset: str) -> bool:
        doorbell = DoorbellDouble()
        top_up(
            self._operator, Queue.MOVES, doorbell, window=1000, republish_after=REPUBLISH_AFTER, longest_attempt=3600
        )
        return dataset in doorbell.sent

    def set_strategy(self, strategy: Strategy | None) -> None:
        warehouses.set_strategy(self._operator, WAREHOUSE, strategy)

    def retry(self, dataset: str) -> bool:
        return bool(operations.retry_datasets(self._operator, [dataset]))

    def revert(self, dataset: str) -> bool:
        return bool(reversal.revert_datasets(self._operator, [dataset]))

    def resolve(self, dataset: str, *, keep_new: bool, lost_location: str) -> bool:
        found = reversal.diverged(self._operator, dataset)
        keep = reversal.Keep.NEW if keep_new else reversal.Keep.OLD
        return found is not None and reversal.resolve(self._operator, found, keep, lost_location)
