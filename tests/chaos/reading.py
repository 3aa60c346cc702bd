"""A reader that never stops, ``python -m tests.chaos.reading ORDERS``: resolves a dataset's name and reads its table.

A read has failed when the resolver names the same place before it and after it, and the dataset's table was not there
or could not be read: a name that changed in between was left by the time it was asked for. The reader asks the catalog
itself, without a proxy that lies, so that no answer excuses a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg

from tests.chaos.traffic import ordered

if TYPE_CHECKING:
    from tests.chaos.traffic import Ways

_ROUND: Final = 20
"""Reads between two looks at which datasets are on the move."""
_EVERY: Final = 5
"""One read of so many decodes all rows; the others load the table and open its metadata."""
_MOVING: Final = b"""
SELECT dataset_id FROM reroot.moves WHERE state IN ('queued', 'flipped') OR updated_at > now() - interval '5 seconds'
"""


def main() -> None:
    ways = ordered()
    everything = sorted(ways.orders.uuids)
    while not ways.over:
        try:
            moving = sorted(str(row[0]) for row in ways.connection().execute(_MOVING).fetchall())
        except psycopg.Error:
            ways.broken()
            continue
        for number in range(_ROUND):
            if ways.over:
                break
            _read(ways, ways.chance.choice(moving if moving and number % 2 else everything))
            ways.rest()
    ways.close()


def _read(ways: Ways, dataset: str) -> None:
    try:
        name = ways.resolve(dataset)
    except psycopg.Error:
        ways.counts["resolver away"] += 1
        ways.broken()
        return
    problem = _problem(ways, name, ways.orders.uuids[dataset], whole=ways.counts["reads"] % _EVERY == 0)
    ways.counts["reads"] += 1
    if problem is None:
        return
    still = _resolved_again(ways, dataset)
    if still is None:
        ways.counts["undecided"] += 1
    elif still == name:
        ways.counts["failed"] += 1
        ways.tell(kind="failed", dataset=dataset, name=name, problem=problem)
    else:
        ways.counts["moved meanwhile"] += 1


def _problem(ways: Ways, name: str, uuid: str, *, whole: bool) -> str | None:
    try:
        table = ways.catalog.load_table(name)
        if str(table.metadata.table_uuid) != uuid:
            return f"another table: {table.metadata.table_uuid}"
        snapshot = table.current_snapshot()
        if whole and snapshot is not None and snapshot.summary is not None:
            rows, said = table.scan().to_arrow().num_rows, snapshot.summary["total-records"]
            if str(rows) != said:
                return f"{rows} rows of {said}"
    except Exception as error:  # noqa: BLE001 - whatever stops a reader is what is looked for
        return repr(error)
    return None


def _resolved_again(ways: Ways, dataset: str) -> str | None:
    """The name once more, however long the resolver is away; None when this process ends first."""
    while not ways.over:
        try:
            return ways.resolve(dataset)
        except psycopg.Error:
            ways.broken()
    return None


if __name__ == "__main__":
    main()
