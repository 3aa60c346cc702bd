"""The contract between whoever publishes and whoever works: queue names, task names, arguments.

Responsible for: names that other programs rely on. Changing one is a major version.
Must not know: Celery. A message carries an id and nothing that matters: the ledger is the truth.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Queue(StrEnum):
    """The queues, each consumed by ``celery -A worker.app worker -Q NAME``."""

    MOVES = "moves"
    BIRTHS = "births"
    PROVISIONING = "provisioning"


MOVE_TASK: Final = "reroot.move"
"""``reroot.move(dataset_id)``: one attempt at a dataset's move, or at its retirement when it is flipped."""

WRITE_TASK: Final = "reroot.write"
PROVISION_TASK: Final = "reroot.provision"

TASK_OF: Final = {Queue.MOVES: MOVE_TASK, Queue.BIRTHS: WRITE_TASK, Queue.PROVISIONING: PROVISION_TASK}
