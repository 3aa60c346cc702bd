"""``reroot move --wait`` says why nothing moves, and the totals of ``reroot check`` are the sums of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from producer.screen import Screen
from producer.wait import Progress
from producer.waiting_room import STALLED_SECONDS, Stalled
from tests.support import ledger
from tests.support.operator import Operator
from tests.support.place import Place
from worker.controlplane import reporting
from worker.controlplane.connection import connect

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture

AWAY = (
    "INSERT INTO reroot.warehouses (warehouse, down_since, down_until, down_reason)"
    " VALUES ('lake', now(), now() + interval '1 minute', '503')"
)
BUSY = "UPDATE reroot.moves SET busy_since = now(), busy_count = 3"
WAITING = "UPDATE reroot.moves SET waiting_for = 'the file of the secret', not_before = now() + interval '1 minute'"


@pytest.mark.parametrize(
    ("worker", "change", "says"),
    [
        (False, "SELECT", "waiting: no worker is alive (celery -A worker.app worker -Q moves)"),
        (True, AWAY, "waiting: warehouse lake does not answer: 503"),
        (True, WAITING, "waiting: 1 dataset for the file of the secret"),
        (True, BUSY, "waiting: another program holds the lock or rows of "),
        (True, "SELECT", ""),
    ],
    ids=["no worker", "warehouse away", "waiting", "busy", "under way"],
)
def test_a_wait_without_progress_says_why_and_says_it_once(
    control_plane: ControlPlaneFixture,
    database: str,
    valkey: str,
    capsys: pytest.CaptureFixture[str],
    *,
    worker: bool,
    change: str,
    says: str,
) -> None:
    Place(control_plane).dataset(None)
    Operator(database, valkey).types("move", "--all")
    if worker:
        ledger.worker_alive(control_plane)
    control_plane.execute(change)
    capsys.readouterr()
    with connect(database, role="test") as connection:
        stalled = Stalled(lambda: reporting.status(connection))
        for elapsed in (0.0, STALLED_SECONDS - 1):
            stalled.look(Progress(total=1, elapsed=elapsed), Screen())
        assert capsys.readouterr().err == ""
        for times in (1, 2, 3):
            stalled.look(Progress(total=1, elapsed=times * STALLED_SECONDS), Screen())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == bool(says)
    assert "".join(lines).startswith(says)


def test_the_columns_of_check_add_up(control_plane: ControlPlaneFixture, database: str, valkey: str) -> None:
    place, operator = Place(control_plane), Operator(database, valkey)
    moved, _ = place.dataset(None, None), place.dataset(None)
    operator.types("move", "--all")
    ledger.flip(control_plane, moved)
    lines = [line.split() for line in operator.types("check").out.splitlines()]
    assert ["datasets", "1", "2", "1", "3"] in lines
    assert ["sales.europe", "1", "0", "2", "0"] in lines
    assert ["total", "2", "2", "3", "3"] in lines
