"""What an operator sees in Flower: parked is FAILURE, waiting is RETRY, and each task names its dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
import urllib3

from demo.inventory import Holding
from demo.population import Born, populate
from demo.processes import wait_until
from demo.stack import Stack
from worker.identifiers import LEGACY_NAMESPACE, default_table_name
from worker.messages import MOVE_TASK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = pa.table({"number": [1, 2, 3]})


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """The embedded stack, as ``make demo KEEP=1`` leaves it up."""
    with Stack(tmp_path / "stack") as running:
        running.migrate()
        yield running


def born_in(stack: Stack, *names: str) -> list[Born]:
    holdings = [Holding("Ateliers", "Ventes", "Europe", name, (ROWS,), ROWS.schema) for name in names]
    return populate(stack.control_plane_url, stack.lakehouse, holdings)


def drop_table(stack: Stack, one: Born) -> None:
    warehouse = stack.lakehouse.warehouse(one.workspace_id)
    warehouse.drop_table((LEGACY_NAMESPACE, default_table_name(one.dataset_id)))
    warehouse.close()


def tasks(flower: str, query: str = "") -> list[dict[str, Any]]:
    answer = urllib3.request("GET", f"{flower}/api/tasks?limit=100{query}", timeout=10, retries=False)
    assert answer.status == 200
    return list(answer.json().values())


def states(flower: str, one: Born) -> set[str]:
    """The states of every task whose arguments, as the task list shows them, name the dataset."""
    return {task["state"] for task in tasks(flower) if one.dataset_id in task["args"]}


def test_flower_shows_who_is_parked_who_waits_and_which_dataset_it_is(stack: Stack) -> None:
    moved, parked, waiting = born_in(stack, "Commandes", "Perdue", "En cours d'écriture")
    drop_table(stack, parked)
    flower = stack.start_flower()
    stack.start_workers(1, processes=2)
    with psycopg.connect(stack.control_plane_url) as writer:
        writer.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (waiting.dataset_id,))
        assert stack.reroot("move", "--all") == 0
        wait_until(lambda: states(flower, moved) == {"SUCCESS"}, seconds=30, what="the moved dataset is SUCCESS")
        wait_until(lambda: states(flower, parked) == {"FAILURE"}, seconds=30, what="the parked dataset is FAILURE")
        wait_until(lambda: states(flower, waiting) == {"RETRY"}, seconds=30, what="the waiting dataset is RETRY")
    failed = tasks(flower, "&state=FAILURE")
    assert [task["name"] for task in failed] == [MOVE_TASK]
    assert "table_missing" in failed[0]["exception"]
    assert all(parked.dataset_id not in task["args"] for task in tasks(flower, "&state=RETRY"))
    # The writer has let go of the lock: what waited is moved, and nothing that was shown as RETRY is stuck there.
    wait_until(lambda: "SUCCESS" in states(flower, waiting), seconds=60, what="the waiting dataset is moved")
