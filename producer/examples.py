"""Examples at the end of each command's help.

Responsible for: two or three lines a command that a person can type as they are, with their own ids.
Must not know: what a command does.
"""

from __future__ import annotations

from typing import Final

EXAMPLES: Final = {
    "plan": (
        "reroot plan",
        "reroot plan --catalog sales --csv > plan.csv",
        "reroot plan --dataset ID",
    ),
    "move": (
        "reroot move --dataset ID --wait",
        "reroot move --all --limit 100 --wait",
        "reroot move --all --catalog sales --dry-run",
    ),
    "status": (
        "reroot status --watch",
        "reroot status --workspace ID --json",
    ),
    "show": (
        "reroot show DATASET",
        "reroot show DATASET --json",
    ),
    "parked": (
        "reroot parked",
        "reroot parked --code diverged --workspace ID",
    ),
    "retry": (
        "reroot retry DATASET",
        "reroot retry --code name_taken --catalog sales",
        "reroot retry --all --limit 100",
    ),
    "cancel": (
        "reroot cancel DATASET",
        "reroot cancel --all --workspace ID",
    ),
    "revert": (
        "reroot revert DATASET",
        "reroot revert --all --catalog sales --yes",
    ),
    "resolve": (
        "reroot resolve DATASET --keep new",
        "reroot resolve DATASET --keep old --yes",
    ),
    "warehouse": (
        "reroot warehouse",
        "reroot warehouse WAREHOUSE --strategy rename",
    ),
    "check": (
        "reroot check",
        "reroot check --workspace ID --json",
    ),
    "config": ("reroot config",),
    "doctor": (
        "reroot doctor",
        "reroot doctor --warehouse NAME --probe",
    ),
    "db upgrade": (
        "reroot db upgrade",
        "reroot db upgrade --with-baseline",
    ),
    "db current": ("reroot db current",),
    "db check": ("reroot db check",),
    "db downgrade": ("reroot db downgrade --yes",),
}
"""By the command's full name."""


def of(command: str) -> str:
    """The examples of one command, as the end of its help: a line each."""
    return "\n\n".join(("Examples:", *EXAMPLES[command]))
