"""What an operator turns around: a move taken back, a divergence decided.

Responsible for: transition *i*, and those of a decision (*g*, *h* or *i*); each raises the claim, so that an attempt
that runs meanwhile cannot write its end.
Must not know: any catalog, what a decision costs (the command shows that first), the broker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from psycopg import sql

from worker.controlplane.connection import Connection, translated
from worker.controlplane.facts import EVERYTHING, Scope
from worker.controlplane.operations import LOCK_SECONDS
from worker.controlplane.scoping import ledger_condition
from worker.identifiers import TableIdentifier
from worker.moves.machine import Direction, State

if TYPE_CHECKING:
    from collections.abc import Sequence

FRESH: Final = """
    claim = m.claim + 1, attempts = 0, busy_count = 0, busy_since = NULL, park_code = NULL, park_text = NULL,
    park_remedy = NULL, not_before = now(), published_at = NULL, attempt_started_at = NULL, worker = NULL,
    waiting_for = NULL, updated_at = now()
"""
"""What every order of an operator begins anew; the alias is ``m``."""

_REVERT: Final = """
WITH picked AS (
    SELECT dataset_id, claim, state FROM reroot.moves
    WHERE state IN ('flipped', 'done') AND direction = 'out' AND {condition}
    ORDER BY dataset_id
    LIMIT %(limit)s
    FOR UPDATE
), reverted AS (
    UPDATE reroot.moves m
    SET state = 'queued', direction = 'back', flipped_at = NULL, done_at = NULL, given_up = NULL, {fresh}
    FROM picked p
    WHERE m.dataset_id = p.dataset_id AND m.state = p.state AND m.claim = p.claim
    RETURNING m.dataset_id, m.claim, p.state AS was
), noted AS (
    INSERT INTO reroot.move_events (dataset_id, claim, event, transition, from_state, to_state)
    SELECT dataset_id, claim, 'reverted', 'i', was, 'queued' FROM reverted
)
SELECT dataset_id FROM reverted ORDER BY dataset_id
"""

_REVERTIBLE: Final = """
SELECT count(*) FROM reroot.moves WHERE state IN ('flipped', 'done') AND direction = 'out' AND {condition}
"""

_DIVERGED: Final = """
SELECT claim, direction, flipped_at IS NOT NULL, source_identifier, target_namespace, table_name, workspace_id,
       park_beside
FROM reroot.moves WHERE dataset_id = %s AND state = 'parked' AND park_code = 'diverged'
"""

_RESOLVE: Final = """
WITH resolved AS (
    UPDATE reroot.moves m
    SET state = %(to)s, direction = %(direction)s, given_up = %(lost)s,
        old_location = CASE WHEN %(left_is_lost)s THEN %(lost)s ELSE old_location END,
        target_namespace = coalesce(%(place)s, target_namespace),
        flipped_at = CASE WHEN %(to)s = 'flipped' THEN flipped_at END, {fresh}
    WHERE dataset_id = %(dataset)s AND state = 'parked' AND claim = %(claim)s
    RETURNING dataset_id, claim
)
INSERT INTO reroot.move_events (dataset_id, claim, event, transition, from_state, to_state, detail)
SELECT dataset_id, claim, 'resolved', %(letter)s, 'parked', %(to)s,
       jsonb_build_object('keep', %(kept)s::text, 'given_up', %(lost)s::text)
FROM resolved RETURNING 1
"""


class Keep(StrEnum):
    """The side of a divergence that a person keeps."""

    OLD = "old"
    """The name that the move leaves."""
    NEW = "new"
    """The name that it goes to."""


@dataclass(frozen=True, slots=True)
class Diverged:
    """A dataset whose two names have diverged; ``old`` is the one that its direction leaves."""

    dataset_id: str
    claim: int
    direction: Direction
    flipped: bool
    """The resolver names ``new``; else ``old``."""
    old: TableIdentifier
    new: TableIdentifier
    workspace_id: str
    only: Keep | None = None
    """The live side, where no other can be kept: the divergence is with a registration of an earlier target."""

    def side(self, keep: Keep) -> TableIdentifier:
        """The identifier of one side."""
        return self.old if keep is Keep.OLD else self.new


def revert_datasets(connection: Connection, dataset_ids: Sequence[str]) -> list[str]:
    """Take the moves of these datasets back; those that could not be are not returned. Raises ControlPlaneError."""
    return revert_all(connection, Scope(dataset_ids=tuple(dataset_ids)))


def revert_all(connection: Connection, scope: Scope = EVERYTHING, limit: int | None = None) -> list[str]:
    """Take every move in scope back that is flipped or done, at most ``limit``. Raises ControlPlaneError."""
    condition, parameters = ledger_condition(scope)
    with translated(), connection.transaction():
        connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(f"{LOCK_SECONDS}s")))
        query = sql.SQL(_REVERT).format(condition=condition, fresh=sql.SQL(FRESH))
        return [row[0] for row in connection.execute(query, {**parameters, "limit": limit}).fetchall()]


def revertible(connection: Connection, scope: Scope) -> int:
    """How many moves in scope could be taken back now. Raises ControlPlaneError."""
    condition, parameters = ledger_condition(scope)
    with translated():
        query = sql.SQL(_REVERTIBLE).format(condition=condition)
        row: Any = connection.execute(query, parameters).fetchone()
    return int(row[0])


def diverged(connection: Connection, dataset_id: str) -> Diverged | None:
    """The dataset if it is parked as diverged. Raises ControlPlaneError."""
    with translated():
        row: Any = connection.execute(_DIVERGED, (dataset_id,)).fetchone()
    if row is None:
        return None
    claim, direction, flipped, source, place_namespace, name, workspace, beside = row
    way = Direction(direction)
    legacy = TableIdentifier.within(source.removesuffix("." + name), name)
    place = TableIdentifier.within(place_namespace, name)
    old, new = (legacy, place) if way is Direction.OUT else (place, legacy)
    return beside_live(Diverged(dataset_id, claim, way, flipped, old, new, workspace), beside)


def beside_live(between: Diverged, namespace: str | None) -> Diverged:
    """The divergence of the live name and the one in ``namespace``, which an earlier target may have made."""
    if namespace is None:
        return between
    beside = TableIdentifier.within(namespace, between.old.name)
    if between.flipped:
        return replace(between, old=beside, only=None if beside == between.old else Keep.NEW)
    fits = beside == between.new or between.direction is Direction.OUT
    return replace(between, new=beside, only=None if fits else Keep.OLD)


def resolve(connection: Connection, divergence: Diverged, keep: Keep, lost_location: str) -> bool:
    """Order that one side is kept. ``lost_location`` is what the person was shown of the other: nothing else is lost.

    False where the row has changed since it was read, or that side cannot be kept. Raises ControlPlaneError.
    """
    if divergence.only not in {None, keep}:
        return False
    to, letter, direction = _way(divergence, keep)
    with translated(), connection.transaction():
        connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(f"{LOCK_SECONDS}s")))
        done = connection.execute(
            sql.SQL(_RESOLVE).format(fresh=sql.SQL(FRESH)),
            {
                "dataset": divergence.dataset_id,
                "claim": divergence.claim,
                "to": to.value,
                "letter": letter,
                "direction": direction.value,
                "kept": str(divergence.side(keep)),
                "lost": lost_location,
                "left_is_lost": keep is Keep.NEW and divergence.only is None,
                "place": new_place(divergence, keep),
            },
        ).fetchone()
    return done is not None


def new_place(divergence: Diverged, keep: Keep) -> str | None:
    """The namespace that the move goes to from now on, where the decision says so: before the flip, the kept side's."""
    kept = keep is Keep.NEW and not divergence.flipped and divergence.direction is Direction.OUT
    return ".".join(divergence.new.namespace) if kept else None


def _way(divergence: Diverged, keep: Keep) -> tuple[State, str, Direction]:
    """The kept side becomes, or stays, the live one; the other is withdrawn after the grace."""
    if not divergence.flipped:
        return State.QUEUED, "g", divergence.direction
    if keep is Keep.NEW:
        return State.FLIPPED, "h", divergence.direction
    turned = Direction.BACK if divergence.direction is Direction.OUT else Direction.OUT
    return State.QUEUED, "i", turned
