"""A real worker on real tables while its broker forgets: all work is finished, and nothing is published for ever."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from demo.processes import wait_until
from tests.support.broker import Broker
from tests.support.tables import make_table, pyiceberg_catalog_for, sql_connection
from tests.support.worker_process import WorkerProcess, worker_settings
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier, default_table_name

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.controlplane import ControlPlaneFixture

COUNT = 12
QUIET_ROUNDS = 5


def born_and_planned(control_plane: ControlPlaneFixture, database: str, folder: Path, count: int) -> list[str]:
    """Datasets with a table each in the legacy namespace, planned as the producer does."""
    catalog = pyiceberg_catalog_for(sql_connection(database, folder), "lake")
    workspace = control_plane.workspace()
    schema = control_plane.schema(control_plane.catalog(workspace, "Sales"), "Europe")
    datasets = [control_plane.dataset(workspace, schema) for _ in range(count)]
    for dataset in datasets:
        name = default_table_name(dataset)
        table = make_table(catalog, TableIdentifier((LEGACY_NAMESPACE,), name))
        snapshot = table.current_snapshot()
        control_plane.log(dataset, snapshot_id=snapshot.snapshot_id if snapshot else None)
        control_plane.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
            " VALUES (%s, %s, %s, %s, 'sales.europe')",
            (dataset, workspace, f"{LEGACY_NAMESPACE}.{name}", name),
        )
    catalog.close()
    return datasets


def in_state(control_plane: ControlPlaneFixture, *states: str) -> int:
    return int(control_plane.execute("SELECT count(*) FROM reroot.moves WHERE state = ANY (%s)", (list(states),))[0][0])


def sent(broker: Broker) -> Counter[str]:
    """Messages published so far, by dataset."""
    return Counter(str(event["args"]) for event in list(broker.events) if event["type"] == "task-sent")


def test_a_flushed_broker_delays_and_loses_nothing(
    database: str, valkey: str, control_plane: ControlPlaneFixture, tmp_path: Path
) -> None:
    datasets = born_and_planned(control_plane, database, tmp_path / "lake", COUNT)
    # These messages were lost for certain; whether a flush below hits one depends on the moment.
    control_plane.execute("UPDATE reroot.moves SET published_at = now() WHERE dataset_id = ANY (%s)", (datasets[:4],))
    settings = worker_settings(database, valkey, tmp_path / "lake", REROOT_QUEUE_WINDOW="8")
    with WorkerProcess(tmp_path, settings, concurrency=1) as worker, Broker(valkey) as broker:
        wait_until(lambda: in_state(control_plane, "flipped", "done") >= 1, seconds=60, what="the first flip")
        for _ in range(3):
            broker.lose_all()
            before = in_state(control_plane, "done")
            wait_until(
                lambda least=before: in_state(control_plane, "done") > min(least, COUNT - 1),  # type: ignore[misc]
                seconds=60, what="it goes on after the loss",
            )  # fmt: skip
        wait_until(lambda: in_state(control_plane, "done") == COUNT, seconds=60, what="everything is done")
        wait_until(broker.empty, seconds=30, what="no message is left")

        total = sum(sent(broker).values())
        rounds = "SELECT seen_at FROM reroot.workers"
        for _ in range(QUIET_ROUNDS):
            last = control_plane.execute(rounds)
            wait_until(lambda seen=last: control_plane.execute(rounds) != seen, seconds=30, what="another round")  # type: ignore[misc]
        assert sum(sent(broker).values()) == total, "nothing is published for ever"
        assert broker.empty()
    ended = [json.loads(line) for line in worker.text().splitlines() if '"attempt ended"' in line]
    done = [line for line in ended if line["outcome"] == "done"]
    assert {(line["dataset_id"], line["state"]) for line in done} == {
        (dataset, state) for dataset in datasets for state in ("flipped", "done")
    }
    assert all({"warehouse", "attempt", "level", "timestamp"} <= line.keys() for line in done)
