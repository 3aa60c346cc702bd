"""The closing look, when everything has ended: the ledger, the catalog's own table of names, the files themselves.

Responsible for: gathering what is there, by ways of its own: no adapter of Reroot and no catalog's answer is believed.
Must not know: what of it is right (``verdict``).
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from pyiceberg.table import StaticTable

from tests.chaos.files import path_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.chaos.stage import Subject

_LEDGER: Final = """
SELECT m.dataset_id, m.state, m.direction, m.park_code, m.park_text, m.attempts, m.attempt_started_at IS NOT NULL,
       reroot.table_identifier(m.dataset_id::uuid),
       ARRAY(SELECT DISTINCT l.iceberg_table FROM iceberg_sync_log l
             WHERE l.dataset_id = m.dataset_id::uuid AND l.status = 'succeeded' ORDER BY 1),
       (SELECT count(*) FROM reroot.pointers p WHERE p.dataset_id = m.dataset_id AND p.closed_at IS NULL)
FROM reroot.moves m
"""
_EVENTS: Final = "SELECT event, count(*) FROM reroot.move_events GROUP BY event ORDER BY event"
_STORIES: Final = """
SELECT dataset_id, at::text, concat_ws(' ', 'claim', claim, event, detail)
FROM reroot.move_events
UNION ALL
SELECT dataset_id, opened_at::text, concat_ws(' ', 'claim', claim, 'entry', id, action, namespace || '.' || table_name,
                                              metadata_location, 'closed', coalesce(closed_at::text, 'never'), outcome)
FROM reroot.pointers
ORDER BY 1, 2
"""
_LOCKS: Final = (
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_NAMES: Final = "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables"


@dataclass(frozen=True, slots=True)
class Name:
    """One name in the catalog, and what its metadata file says."""

    identifier: str
    metadata_file: str
    snapshots: tuple[int, ...]
    """The current one and its ancestors."""
    log: frozenset[str]
    """Metadata files that came before."""


@dataclass(frozen=True, slots=True)
class End:
    """Where one dataset stands. ``rows``: how many a reader decodes, and how many its snapshot says there are."""

    subject: Subject
    state: str | None
    direction: str | None
    park_code: str | None
    park_text: str | None
    attempts: int
    running: bool
    resolved: str | None
    logged: tuple[str, ...]
    open_entries: int
    names: tuple[Name, ...]
    rows: tuple[int, int] | None

    @property
    def expected(self) -> str:
        """The name that a move which is done has gone to; one that was taken back has gone home."""
        return self.subject.old if self.direction == "back" else self.subject.new

    @property
    def live(self) -> Name | None:
        """The name that the resolver gives, where it holds the dataset's table."""
        return next((name for name in self.names if name.identifier == self.resolved), None)


@dataclass(frozen=True, slots=True)
class Look:
    """Everything at the end."""

    ends: tuple[End, ...]
    events: Mapping[str, int]
    advisory_locks: int
    stories: Mapping[str, list[str]]
    """By dataset, in order of time: its events and its journal."""


def look(database: str, catalog_database: str, subjects: Iterable[Subject]) -> Look:
    """Gather it. Nothing may be at work any more."""
    names = _names(catalog_database)
    with psycopg.connect(database) as connection:
        ledger = {row[0]: row[1:] for row in connection.execute(_LEDGER).fetchall()}
        events = {str(event): int(count) for event, count in connection.execute(_EVENTS).fetchall()}
        stories: dict[str, list[str]] = defaultdict(list)
        for dataset, at, what in connection.execute(_STORIES).fetchall():
            stories[dataset].append(f"{at} {what}")
        locks = connection.execute(_LOCKS).fetchone()
    ends = tuple(_end(subject, ledger.get(subject.dataset_id), names[subject.table_uuid]) for subject in subjects)
    return Look(ends, events, int(locks[0]) if locks else 0, stories)


def _end(subject: Subject, row: tuple[Any, ...] | None, names: list[Name]) -> End:
    nothing: tuple[Any, ...] = (None, None, None, None, 0, False, None, [], 0)
    state, direction, code, text, attempts, running, resolved, logged, entries = row or nothing
    live = next((name for name in names if name.identifier == resolved), None)
    return End(
        subject, state, direction, code, text, attempts, running, resolved, tuple(logged), entries,
        tuple(names), None if live is None else _rows(live.metadata_file),
    )  # fmt: skip


def _names(catalog_database: str) -> dict[str, list[Name]]:
    """By table uuid: every name that holds it, wherever, and the path of its metadata file."""
    found: dict[str, list[Name]] = defaultdict(list)
    with psycopg.connect(catalog_database) as connection:
        rows = connection.execute(_NAMES).fetchall()
    for identifier, location in rows:
        path = path_of(location)
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        log = frozenset(path_of(entry["metadata-file"]) for entry in document.get("metadata-log", []))
        found[document["table-uuid"]].append(Name(identifier, path, _ancestry(document), log))
    return found


def _ancestry(document: Mapping[str, Any]) -> tuple[int, ...]:
    parents = {one["snapshot-id"]: one.get("parent-snapshot-id") for one in document["snapshots"]}
    chain, at = [], document["current-snapshot-id"]
    while at in parents:
        chain.append(int(at))
        at = parents[at]
    return tuple(chain)


def _rows(path: str) -> tuple[int, int]:
    table = StaticTable.from_metadata(path)
    snapshot = table.current_snapshot()
    said = int(snapshot.summary["total-records"] or 0) if snapshot is not None and snapshot.summary is not None else 0
    return table.scan().to_arrow().num_rows, said
