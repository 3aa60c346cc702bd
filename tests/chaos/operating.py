"""An operator who gives orders while everything breaks: retry, revert, cancel.

Responsible for: which orders are given, to which datasets, and how many were carried out.
Must not know: what becomes of them.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from worker.controlplane.cancelling import cancel
from worker.controlplane.connection import ControlPlaneError, connect
from worker.controlplane.facts import Scope
from worker.controlplane.operations import retry_codes
from worker.controlplane.reversal import revert_datasets

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from worker.controlplane.connection import Connection

_PAUSE: Final = 1.0
"""Seconds between two orders."""


def operate(database: str, seed: int, datasets: Sequence[str], over: threading.Event) -> Counter[str]:
    """Give an order to some dataset again and again until it is over; how often each had an effect."""
    chance, carried_out = random.Random(f"{seed} operator"), Counter[str]()  # noqa: S311 - chance that a seed repeats
    orders: dict[str, Callable[[Connection, str], int]] = {
        "retry": lambda connection, _: len(retry_codes(connection, ())),
        "revert": lambda connection, dataset: len(revert_datasets(connection, [dataset])),
        "cancel": lambda connection, dataset: len(cancel(connection, Scope(dataset_ids=(dataset,)), None)),
    }
    while not over.wait(_PAUSE):
        order, dataset = chance.choice(list(orders)), chance.choice(datasets)
        try:
            with connect(database, role="operator") as connection:
                carried_out[order] += orders[order](connection, dataset)
        except ControlPlaneError:
            carried_out["control plane away"] += 1
    return carried_out
