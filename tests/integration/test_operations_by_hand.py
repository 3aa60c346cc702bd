"""What the operator's manual tells to do by hand, done as it is written there."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from demo.processes import wait_until
from producer.publish import Window, ring
from tests.support.doorbell_double import DoorbellDouble
from tests.support.manual import MANUAL, fenced, section, statements
from tests.support.operator import Operator
from tests.support.stage import Stage, raising, unclear
from worker.controlplane import operations
from worker.controlplane.connection import connect
from worker.controlplane.election import elected
from worker.controlplane.workers import note_alive, note_gone
from worker.identifiers import QUARANTINE_NAMESPACE, TableIdentifier, quarantine_identifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.messages import Queue
from worker.outcome import Done, Park, ParkCode

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.every_postgres

BLOCKS: Final = fenced(MANUAL.read_text(encoding="utf-8"), "sql")
READING: Final = [block for block in BLOCKS if "GRANT" not in block and "BEGIN" not in block]
ROLE: Final = "reroot_worker"
_numbers = itertools.count(1)


def by_hand(stage: Stage, heading: str, dataset: str) -> list[int]:
    """Run the statements of a section's last block; how many rows each one changed or returned."""
    with psycopg.connect(stage.url, autocommit=True) as session:
        return [
            session.execute(each.encode()).rowcount for each in statements(fenced(section(heading), "sql")[-1], dataset)
        ]


def retry(stage: Stage, dataset: str) -> None:
    with connect(stage.url, role="test") as connection:
        assert [each.dataset_id for each in operations.retry_datasets(connection, [dataset])] == [dataset]


@pytest.mark.parametrize("block", READING, ids=lambda block: block.splitlines()[0][:40])
def test_every_query_of_the_manual_runs(stage: Stage, block: str) -> None:
    subject = stage.subject()
    with psycopg.connect(stage.url) as session:
        session.read_only = True
        for each in statements(block, subject.id):
            session.execute(each.encode())


def query(stage: Stage, beginning: str, dataset: str = "") -> list[tuple[object, ...]]:
    """The rows of the manual's query that begins so."""
    block = next(block for block in READING if block.startswith(beginning))
    return stage.execute(statements(block, dataset)[0])


def test_the_query_of_locks_says_who_holds_which_dataset(stage: Stage) -> None:
    subject, other = stage.subject(), stage.subject(catalog="Other")
    with stage.writing(subject):
        assert [str(row[0]) for row in query(stage, "SELECT d.id")] == [subject.id]
    held: list[tuple[object, ...]] = []
    with stage.when("register", lambda: held.extend(query(stage, "SELECT d.id"))):
        stage.attempt(other)
    assert [(str(row[0]), row[3]) for row in held] == [(other.id, "reroot-lock")]


def test_the_query_of_pairs_shows_what_is_parked_after_its_flip(stage: Stage) -> None:
    early, late = stage.subject(), stage.subject(catalog="Other")
    stage.catalog.create(early.new)
    assert isinstance(stage.attempt(early), Park)
    assert stage.attempt(late) == Done("flipped")
    stage.catalog.commit(late.old)
    stage.catalog.commit(late.new)
    assert stage.finish(late) == "parked"
    pairs = query(stage, "-- Pairs")
    assert [(row[0], row[1], row[3]) for row in pairs] == [(late.id, "parked", str(late.old))]


def test_the_query_of_the_quarantine_names_where_the_pointer_is(stage: Stage) -> None:
    subject = stage.subject()
    stage.attempt(subject)
    stage.pass_time(subject)
    with stage.when("drop", lambda: raising(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
        stage.attempt(subject)
    (row,) = query(stage, "-- Withdrawals")
    place = TableIdentifier.within(QUARANTINE_NAMESPACE, str(row[2]).removeprefix(QUARANTINE_NAMESPACE + "."))
    assert place in stage.catalog.names


def test_the_query_of_the_quarantine_cuts_a_long_name_where_the_worker_does(stage: Stage) -> None:
    subject = stage.subject()
    ((entry,),) = stage.execute(
        "INSERT INTO reroot.pointers (dataset_id, claim, action, namespace, table_name, warehouse, table_uuid,"
        " metadata_location, sequence_number)"
        " VALUES (%s, 1, 'withdraw', 'datasets', repeat('n', 255), 'w', 'u', 'm', 1) RETURNING id",
        (subject.id,),
    )
    assert [row[2] for row in query(stage, "-- Withdrawals")] == [str(quarantine_identifier("n" * 255, entry))]


@pytest.fixture
def role(stage: Stage) -> Iterator[str]:
    """The URL of a role that has what the manual grants, and nothing else."""
    name = f"{ROLE}_{next(_numbers)}"
    stage.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    (grants,) = [block for block in BLOCKS if "GRANT" in block]
    for each in statements(grants, ""):
        stage.execute(each.replace(ROLE, name))
    parts = urlsplit(stage.url)
    yield urlunsplit(parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}"))
    _wait_until_gone(stage, name)
    stage.execute(f"DROP OWNED BY {name}")
    stage.execute(f"DROP ROLE {name}")


def _wait_until_gone(stage: Stage, name: str) -> None:
    def gone() -> bool:
        return not stage.execute("SELECT FROM pg_stat_activity WHERE usename = %s", (name,))

    for adapter in stage._adapters:
        adapter.disconnect()
    wait_until(gone, seconds=10, what="the role's connections are closed")


def test_a_worker_needs_no_more_than_is_granted(stage: Stage, role: str) -> None:
    stage.url, owner = role, stage.url
    subject = stage.subject()
    stage.mover = stage.new_mover("granted")
    with stage.writing(subject):
        stage.attempt(subject)
    stage.catalog.before = lambda _: raising(CatalogError(ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT, "away"))
    stage.pass_time(subject)
    stage.attempt(subject)
    stage.catalog.before = lambda _: None
    stage.execute("UPDATE reroot.warehouses SET down_until = now()")
    assert stage.finish(subject) == "done"
    stage.url = owner


def test_a_sweeper_needs_no_more_than_is_granted(stage: Stage, role: str) -> None:
    subject, bell = stage.subject(), DoorbellDouble()
    with connect(role, role="test") as working, connect(role, role="test") as listening:
        note_alive(working, "granted", [Queue.MOVES], 8)
        with elected(listening) as won:
            assert won
            assert ring(working, bell, Window(10, 120, 180)) == 1
        note_gone(working, "granted")
    assert bell.sent == [subject.id]


def test_the_command_line_needs_no_more_than_is_granted(stage: Stage, role: str, valkey: str) -> None:
    subject = stage.subject(queued=False)
    operator = Operator(role, valkey)
    assert operator.types("move", "--dataset", subject.id).code == 0
    stage.catalog.create(subject.new)
    assert isinstance(stage.attempt(subject), Park)
    for words in (
        ["plan"],
        ["status"],
        ["show", subject.id],
        ["retry", subject.id],
        ["db", "check"],
        ["db", "current"],
    ):
        ended = operator.types(*words)
        assert (ended.code, ended.err) == (0, ""), words
    assert operator.types("check").code == 1


def test_a_place_that_nothing_proves_is_taken_at_the_operators_word(stage: Stage) -> None:
    subject = stage.subject()
    stage.catalog.hold(subject.new, stage.catalog.names.pop(subject.old))
    stage.execute("UPDATE iceberg_sync_log SET snapshot_id = 4711 WHERE dataset_id::text = %s", (subject.id,))
    stage.attempt(subject)
    assert stage.parked(subject) == ParkCode.UNVERIFIED
    place = ".".join(subject.new.namespace)
    stage.execute("UPDATE datasets SET iceberg_namespace = %s WHERE id::text = %s", (place, subject.id))
    retry(stage, subject.id)
    assert stage.finish(subject) == "done"
    assert stage.control_plane.logged_identifiers(subject.id) == [str(subject.new)]


def test_the_operators_word_does_not_go_before_a_uuid_that_is_known(stage: Stage) -> None:
    subject = stage.subject()
    with stage.when("soak", lambda: raising(unclear())):
        stage.attempt(subject)
    del stage.catalog.names[subject.old]
    stage.catalog.create(subject.new)
    place = ".".join(subject.new.namespace)
    stage.execute("UPDATE datasets SET iceberg_namespace = %s WHERE id::text = %s", (place, subject.id))
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.UNVERIFIED


@pytest.mark.parametrize("stale", [False, True])
def test_a_replaced_table_can_be_accepted(stage: Stage, *, stale: bool) -> None:
    subject = stage.subject()
    with stage.when("soak", lambda: raising(unclear())):
        stage.attempt(subject)
    del stage.catalog.names[subject.old]
    stage.catalog.create(subject.old)
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.SOURCE_REPLACED
    if not stale:
        stage.catalog.drop(subject.new)
    by_hand(stage, "Accepting a replaced table", subject.id)
    retry(stage, subject.id)
    assert stage.finish(subject) == ("parked" if stale else "done")
    if stale:
        assert stage.parked(subject) == ParkCode.NAME_TAKEN


def test_a_live_name_that_was_dropped_is_put_back_from_the_journal(stage: Stage) -> None:
    subject = stage.subject()
    stage.attempt(subject)
    newest = stage.catalog.commit(subject.new)
    stage.catalog.drop(subject.new)
    assert stage.finish(subject) == "parked"
    assert stage.parked(subject) == ParkCode.TABLE_MISSING
    named, ledger, journal = (
        stage.execute(each)
        for each in statements(fenced(section("Putting a pointer back by hand"), "sql")[0], subject.id)
    )
    assert named == [(str(subject.new),)]
    assert (ledger[0][1], ledger[0][2], ledger[0][3]) == (str(subject.old), str(subject.new), subject.uuid)
    made = [(row[2], row[5]) for row in journal if row[8] != "void"]
    assert made == [(str(subject.new), ledger[0][4])]
    assert made[0][1] in stage.catalog.files[newest].log
    stage.catalog.register(subject.new, newest)
    retry(stage, subject.id)
    assert stage.finish(subject) == "done"
