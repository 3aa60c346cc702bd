"""The producer behind a pooler, and cut off in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from demo.processes import wait_until
from tests.support import ledger
from tests.support.operator import Operator
from tests.support.place import Place

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture


def test_every_command_works_behind_a_pooler_in_transaction_mode(
    control_plane: ControlPlaneFixture, pooled_database: str, valkey: str
) -> None:
    place = Place(control_plane)
    one, two = place.datasets(2)
    operator = Operator(pooled_database, valkey)
    assert "2 datasets can move" in operator.types("plan").out
    assert operator.types("move", "--all").code == 0
    ledger.flip(control_plane, one)
    ledger.finish(control_plane, one)
    control_plane.log(one)
    ledger.park(control_plane, two)
    assert operator.types("status", "--json").json()["catalogs"][0]["parked"] == 1
    assert operator.types("show", two).code == 0
    ended = operator.types("retry", one, two)
    assert "1 dataset will be tried again." in ended.out
    assert "1 late log row rewritten" in ended.out
    assert list(operator.types("check", "--json").json()["left"]) == ["queued"]


def test_cut_off_while_it_writes_it_says_so_and_goes_on_where_it_was(
    control_plane: ControlPlaneFixture, database: str, valkey: str
) -> None:
    Place(control_plane).datasets(3)
    operator = Operator(database, valkey)
    with psycopg.connect(database) as other, operator.started("move", "--all") as producer:
        other.execute("LOCK TABLE reroot.moves IN SHARE MODE")  # reads pass, the producer's writes wait

        def writes() -> bool:
            rows = control_plane.execute(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = 'reroot-producer' AND wait_event_type = 'Lock'"
            )
            return bool(rows)

        wait_until(writes, seconds=30, what="the producer writes")
        control_plane.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'reroot-producer'"
        )
        out, err = producer.communicate(timeout=30)
    assert (producer.returncode, out) == (3, "")
    assert err.count("\n") == 1
    assert err.startswith("reroot: Postgres cannot be reached: ")
    assert control_plane.execute("SELECT count(*) FROM reroot.moves") == [(0,)]
    assert operator.types("move", "--all").code == 0
    assert control_plane.execute("SELECT count(*) FROM reroot.moves") == [(3,)]
