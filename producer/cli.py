"""The console script ``reroot``, before the large imports.

Responsible for: one line after Ctrl-C at any moment, and the check that the package ``worker`` is Reroot's own.
Must not know: any command.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from producer.ends import INTERRUPTED, LEFT, USAGE


def main() -> None:
    """Run the command line, or say in one line why that is not possible."""
    try:
        stranger = _stranger()
        if stranger is not None:
            sys.stderr.write(
                f"reroot: the package worker in {stranger} is not Reroot's and is found first:"
                " install Reroot into an environment of its own\n"
            )
            sys.exit(USAGE)
        # Late: the import takes half a second, and Ctrl-C may come in it.
        from producer.commands import run  # noqa: PLC0415 - see the line above

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.stderr.write(f"reroot: {INTERRUPTED}\n")
        sys.exit(LEFT)


def _stranger() -> Path | None:
    """The directory of a package ``worker`` that was not installed with this one; None where it is Reroot's."""
    found = find_spec("worker")
    places = [] if found is None else [*(found.submodule_search_locations or ()), found.origin]
    own = Path(__file__).resolve().parents[1] / "worker"
    first = next((Path(place) for place in places if place), own)
    return None if first.resolve() == own else first
