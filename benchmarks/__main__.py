"""``python -m benchmarks [NAME…]``: all benchmarks, or some.

Responsible for: which run, in which order, and the report on standard output.
Must not know: how one is measured.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final

from benchmarks import moves, where
from benchmarks.report import machine
from benchmarks.stack import Stack

NAMES: Final = ("moves", "where", "large")


def main() -> int:
    """Run what was asked for, in an order that leaves the machine as each finds it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measures what docs/benchmarks.md says.")
    parser.add_argument("names", nargs="*", choices=[[], *NAMES], help=f"which: {', '.join(NAMES)}; all when none")
    parser.add_argument("--rounds", type=int, default=5, help="alternating rounds per load")
    parser.add_argument("--load", action="append", help="only this load, as PROCESSES@MILLISECONDS; repeatable")
    given = parser.parse_args()
    loads = tuple(one for one in moves.LOADS if not given.load or f"{one.processes}@{one.delay_ms}" in given.load)
    print(machine())
    with Stack() as stack:
        if "moves" in given.names:
            print(moves.measure_moves(stack, given.rounds, loads))
        if "where" in given.names:
            moves.warm_up(stack)
            print(where.measure_where(stack, 8, 25, 360))
    return 0


if __name__ == "__main__":
    sys.exit(main())
