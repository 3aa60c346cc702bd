"""``python -m benchmarks [NAME…]``: all benchmarks, or some.

Responsible for: which run, in which order, and the report on standard output.
Must not know: how one is measured.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from benchmarks import killing, moves, planning, remembering, renaming, soaking, where
from benchmarks.report import machine
from benchmarks.stack import Services, Stack
from demo.processes import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES: Final = {
    "plan": "plan and enqueue 100,000 datasets of 1,000,000 log rows",
    "soak": "the soak of a large table",
    "moves": "moves per second beside a bare loop, requests and processor time per move",
    "where": "where a move's milliseconds go",
    "kill": "seconds from a kill inside a rename's window until it is settled",
    "rename": "how long readers miss a table that is renamed",
    "large": "tables with 2,000 snapshots",
    "memory": "a worker's memory over 10,000 moves",
}


def main() -> int:
    """Run what was asked for. Progress goes to standard error, the report to standard output."""
    given = _arguments()
    wanted = given.names or list(NAMES)
    print(f"## Measured on\n\n{machine()}\n", flush=True)
    with ExitStack() as stack:
        services = stack.enter_context(Services())
        rest: list[Stack] = []

        def on_catalog() -> Stack:
            if not rest:
                rest.append(stack.enter_context(Stack(services)))
                moves.warm_up(rest[0])
            return rest[0]

        benchmarks: dict[str, Callable[[], str]] = {
            "plan": lambda: planning.measure_planning(services),
            "soak": lambda: soaking.measure_soak(services.folder / "soak"),
            "moves": lambda: moves.measure_moves(on_catalog(), given.rounds, _loads(given.load), given.patience),
            "where": lambda: where.measure_where(on_catalog(), given.rounds),
            "kill": lambda: killing.measure_kill(on_catalog(), given.rounds),
            "rename": lambda: renaming.measure_rename(on_catalog()),
            "large": lambda: moves.measure_large(on_catalog()),
            "memory": lambda: remembering.measure_memory(on_catalog(), given.moves),
        }
        for name in (name for name in NAMES if name in wanted):
            print(f"## {name}: {NAMES[name]}\n\n{benchmarks[name]()}\n", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    what = "".join(f"  {name:7} {meaning}\n" for name, meaning in NAMES.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=what, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which; all when none is given")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds per load (default 5)")
    parser.add_argument("--moves", type=int, default=remembering.MOVES, help="moves of `memory` (default 10000)")
    parser.add_argument(
        "--load", action="append", metavar="PROCESSES@MS", help="of `moves`, only this load; repeatable"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=0,
        metavar="SECONDS",
        help="of `moves`: wait for a quiet machine, and do disturbed rounds again, for at most so long per load",
    )
    given = parser.parse_args()
    unknown = set(given.names) - set(NAMES) | set(given.load or ()) - {str(load) for load in moves.LOADS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return given


def _loads(names: list[str] | None) -> tuple[moves.Load, ...]:
    return tuple(load for load in moves.LOADS if not names or str(load) in names)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # in order, so that nothing is left
    try:
        sys.exit(main())
    except ServiceError as error:
        sys.exit(str(error))
