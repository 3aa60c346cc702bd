"""``reroot parked``: the datasets that need a person, by code with counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support import ledger
from tests.support.operator import Operator
from tests.support.place import Place

if TYPE_CHECKING:
    from tests.support.controlplane import ControlPlaneFixture


def test_parked_lists_by_code_with_counts(control_plane: ControlPlaneFixture, database: str, valkey: str) -> None:
    place, operator = Place(control_plane), Operator(database, valkey)
    datasets = place.datasets(8)
    operator.types("move", "--all")
    for each in datasets[:6]:
        ledger.park(control_plane, each, "name_taken")
    ledger.park(control_plane, datasets[6], "diverged")
    ended = operator.types("parked")
    assert (ended.code, ended.err) == (0, "")
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert lines[:4] == ["code datasets", "diverged 1", "name_taken 6", "total 7"]
    assert f"{datasets[6]} another table has the name" in lines
    assert "and 1 more: reroot parked --code name_taken" in lines
    assert datasets[7] not in ended.out
    assert all(each in operator.types("parked", "--code", "name_taken").out for each in datasets[:6])
    document = operator.types("parked", "--json", "--dataset", datasets[0]).json()
    assert document["codes"] == {"name_taken": 1}
    assert [{**each, "seconds": 0} for each in document["datasets"]] == [
        {
            "dataset_id": datasets[0],
            "code": "name_taken",
            "text": "another table has the name",
            "remedy": "rename that table, then reroot retry",
            "seconds": 0,
        }
    ]
    assert operator.types("parked", "--code", "forbidden").out == "Nothing is parked.\n"
