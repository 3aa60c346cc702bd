"""The control planes that one contract suite runs on, and the first of them: the in-memory twin.

A subject arranges datasets, plays the other programs, makes time pass, and says what is written, in the same words
for the twin and for Postgres (``plane_on_postgres``).
"""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.support.twin_operator import OperatorTwin
from tests.support.twins import (
    WAREHOUSE,
    ControlPlaneTwin,
    DatasetRow,
    LogRow,
    MoveRow,
    PlaneTwin,
    SchemaRow,
    WarehouseRow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.moves.ports import ControlPlane, Strategy

PLACE = "sales.europe"
NAME = "ds_1"
SNAPSHOT = 4711


@dataclass(frozen=True)
class Written:
    """What the ledger's row says; times are seconds from now, None where there is none."""

    state: str
    direction: str
    claim: int
    attempts: int
    busy_count: int
    busy: bool
    due_in: float
    running: bool
    published: bool
    target_namespace: str
    table_uuid: str | None
    old_location: str | None
    old_sequence_number: int | None
    given_up: str | None
    flipped: bool
    park_code: str | None


class PlaneSubject(Protocol):
    """One control plane, and everybody around it."""

    def adapter(self, worker: str = "worker-1", *, attempt_seconds: float = 60) -> ControlPlane:
        """What a worker process has of it."""
        ...

    def dataset(self) -> str:
        """A queued dataset with a place and a log row."""
        ...

    def row(self, dataset: str) -> Written:
        """The ledger's row."""
        ...

    def transitions(self, dataset: str) -> list[tuple[str, str | None, str]]:
        """Transitions that were written, oldest first."""
        ...

    def entries(self, dataset: str) -> list[tuple[str, str | None]]:
        """(action, outcome) of every journal entry, oldest first."""
        ...

    def column(self, dataset: str) -> str | None:
        """``datasets.iceberg_namespace``."""
        ...

    def set_column(self, dataset: str, namespace: str | None) -> None:
        """Another hand sets it."""
        ...

    def logged(self, dataset: str) -> list[str]:
        """Identifiers of the succeeded log rows."""
        ...

    def add_log(self, dataset: str, identifier: str, snapshot: int) -> None:
        """A writer's log row."""
        ...

    def take_schema(self, dataset: str) -> None:
        """Its schema is taken away."""
        ...

    def delete(self, dataset: str) -> None:
        """The dataset and its log are deleted."""
        ...

    def holding(self, dataset: str, *, rows_of: str | None = None) -> AbstractContextManager[None]:
        """Another program holds the dataset's lock, or its row in ``rows_of``."""
        ...

    def locked(self, dataset: str) -> bool:
        """Whether anybody holds its lock."""
        ...

    def cut(self, dataset: str) -> None:
        """The connection of the lock's holder is lost."""
        ...

    def wait_for_idle_end(self, dataset: str) -> None:
        """Be silent until the server has ended the lock's transaction."""
        ...

    def pass_time(self, seconds: float) -> None:
        """Let time go by."""
        ...

    def sweep(self, dataset: str) -> bool:
        """A sweeper's round, the queue being empty: whether it sent the dataset's message."""
        ...

    def set_strategy(self, strategy: Strategy | None) -> None:
        """An operator's word about the warehouse."""
        ...

    def retry(self, dataset: str) -> bool:
        """An operator tries a parked dataset again."""
        ...

    def revert(self, dataset: str) -> bool:
        """An operator takes a move back."""
        ...

    def resolve(self, dataset: str, *, keep_new: bool, lost_location: str) -> bool:
        """An operator keeps one side of a divergence."""
        ...


@dataclass
class TwinSubject(PlaneSubject):
    """The in-memory twin."""

    plane: PlaneTwin = field(default_factory=PlaneTwin)

    def __post_init__(self) -> None:
        self.operator = OperatorTwin(self.plane)
        self.plane.schemas["s"] = SchemaRow("ws", PLACE)

    def adapter(self, worker: str = "worker-1", *, attempt_seconds: float = 60) -> ControlPlane:
        return ControlPlaneTwin(self.plane, worker, attempt_seconds)

    def dataset(self) -> str:
        dataset = str(uuid.uuid4())
        self.plane.datasets[dataset] = DatasetRow("ws", "s")
        self.plane.log[dataset] = [LogRow(f"datasets.{NAME}", SNAPSHOT)]
        self.plane.moves[dataset] = MoveRow(dataset, "ws", f"datasets.{NAME}", NAME, PLACE, not_before=self.plane.now)
        return dataset

    def row(self, dataset: str) -> Written:
        row = self.plane.moves[dataset]
        return Written(
            state=row.state,
            direction=row.direction,
            claim=row.claim,
            attempts=row.attempts,
            busy_count=row.busy_count,
            busy=row.busy_since is not None,
            due_in=row.not_before - self.plane.now,
            running=row.attempt_started_at is not None,
            published=row.published_at is not None,
            target_namespace=row.target_namespace,
            table_uuid=row.table_uuid,
            old_location=row.old_location,
            old_sequence_number=row.old_sequence_number,
            given_up=row.given_up,
            flipped=row.flipped_at is not None,
            park_code=row.park_code,
        )

    def transitions(self, dataset: str) -> list[tuple[str, str | None, str]]:
        return [
            (event.letter, event.source and event.source.value, event.target.value)
            for event in self.plane.events
            if event.dataset_id == dataset
        ]

    def entries(self, dataset: str) -> list[tuple[str, str | None]]:
        return [(row.entry.action, row.outcome) for row in self.plane.pointers if row.dataset_id == dataset]

    def column(self, dataset: str) -> str | None:
        return self.plane.datasets[dataset].iceberg_namespace

    def set_column(self, dataset: str, namespace: str | None) -> None:
        self.plane.datasets[dataset].iceberg_namespace = namespace

    def logged(self, dataset: str) -> list[str]:
        return [row.identifier for row in self.plane.log[dataset]]

    def add_log(self, dataset: str, identifier: str, snapshot: int) -> None:
        self.plane.log[dataset].append(LogRow(identifier, snapshot))

    def take_schema(self, dataset: str) -> None:
        self.plane.datasets[dataset].schema_id = None

    def delete(self, dataset: str) -> None:
        del self.plane.datasets[dataset], self.plane.log[dataset]

    @contextmanager
    def holding(self, dataset: str, *, rows_of: str | None = None) -> Iterator[None]:
        other = object()
        if rows_of is None:
            self.plane.locks[dataset] = other
        else:
            self.plane.rows_held[rows_of, dataset] = other
        yield
        self.plane.release(other)

    def locked(self, dataset: str) -> bool:
        return dataset in self.plane.locks

    def cut(self, dataset: str) -> None:
        self.plane.release(self.plane.locks[dataset])

    def wait_for_idle_end(self, dataset: str) -> None:
        self.plane.pass_time(1.0)

    def pass_time(self, seconds: float) -> None:
        self.plane.pass_time(seconds)

    def sweep(self, dataset: str) -> bool:
        return self.plane.publish(dataset)

    def set_strategy(self, strategy: Strategy | None) -> None:
        row = self.plane.warehouses.setdefault(WAREHOUSE, WarehouseRow())
        row.strategy, row.set_by_operator, row.refused = strategy, strategy is not None, set()

    def retry(self, dataset: str) -> bool:
        return self.operator.retry(dataset)

    def revert(self, dataset: str) -> bool:
        return self.operator.revert(dataset)

    def resolve(self, dataset: str, *, keep_new: bool, lost_location: str) -> bool:
        return self.operator.resolve(dataset, keep_new=keep_new, lost_location=lost_location)
