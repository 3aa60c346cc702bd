"""Topping up: what is due gets one message, in order, up to the window, and never a second one for nothing."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from demo.processes import wait_until
from tests.support.doorbell_double import DoorbellDouble
from worker.controlplane.connection import connect
from worker.controlplane.ledger import PEEK
from worker.controlplane.topup import Work, top_up, work
from worker.doorbell import BrokerAwayError
from worker.messages import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.controlplane.connection import Connection

pytestmark = pytest.mark.every_postgres

T = 120.0
L = 180


class Ledger:
    """Rows as other parts write them, and time that passes when it is told to."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection: Connection = connect(url, role="test")
        self.doorbell = DoorbellDouble()

    def rows(self, count: int = 1, **columns: str) -> list[str]:
        """New rows, oldest first, with SQL expressions for columns; returns their ids."""
        ids = [str(uuid.uuid4()) for _ in range(count)]
        more = "".join(f", {name}" for name in columns), "".join(f", {value}" for value in columns.values())
        self.connection.execute(
            "INSERT INTO reroot.moves"
            f" (dataset_id, workspace_id, source_identifier, table_name, target_namespace, not_before{more[0]})"
            " SELECT id, 'w', 'datasets.t', 't', 'a.b', now() - interval '1 hour' + n * interval '1 ms'"
            f"{more[1]} FROM unnest(%s::text[]) WITH ORDINALITY AS given(id, n)".encode(),
            (ids,),
        )
        return ids

    def change(self, ids: list[str], assignments: str) -> None:
        """Change rows, as an attempt or a clock would."""
        self.connection.execute(f"UPDATE reroot.moves SET {assignments} WHERE dataset_id = ANY (%s)".encode(), (ids,))

    def pass_time(self, seconds: float) -> None:
        """Everything that was published was published so much earlier."""
        self.connection.execute(
            "UPDATE reroot.moves SET published_at = published_at - make_interval(secs => %s)", (seconds,)
        )

    def journal(self, dataset: str, action: str, *, closed: bool = False) -> None:
        """An entry of the journal."""
        self.connection.execute(
            "INSERT INTO reroot.pointers (dataset_id, claim, action, namespace, table_name, warehouse, table_uuid,"
            " metadata_location, sequence_number, closed_at, outcome)"
            " VALUES (%s, 1, %s, 'n', 't', 'w', 'u', 'l', 1, CASE WHEN %s THEN now() END,"
            " CASE WHEN %s THEN 'withdrawn' END)",
            (dataset, action, closed, closed),
        )

    def execute(self, query: str, *parameters: Any) -> list[Any]:
        """The rows of a query."""
        return self.connection.execute(query.encode(), parameters).fetchall()

    def top_up(self, window: int = 1000) -> int:
        return top_up(self.connection, Queue.MOVES, self.doorbell, window=window, republish_after=T, longest_attempt=L)

    def marked_urgent(self) -> set[str]:
        """What every process would do first."""
        return {row[0] for row in self.execute("SELECT dataset_id FROM reroot.moves WHERE urgent")}

    def published(self) -> set[str]:
        rows = self.connection.execute("SELECT dataset_id FROM reroot.moves WHERE published_at IS NOT NULL").fetchall()
        return {row[0] for row in rows}


@pytest.fixture
def ledger(database: str) -> Iterator[Ledger]:
    made = Ledger(database)
    yield made
    made.connection.close()


def test_what_is_planned_is_sent_once_oldest_first(ledger: Ledger) -> None:
    ids = ledger.rows(7)
    assert ledger.top_up() == 7
    assert ledger.doorbell.sent == ids
    for _ in range(5):
        ledger.doorbell.take_all()
        assert ledger.top_up() == 0
    assert ledger.published() == set(ids)


def test_the_window_is_filled_and_never_overfilled(ledger: Ledger) -> None:
    ids = ledger.rows(25)
    assert [ledger.top_up(window=10), ledger.top_up(window=10)] == [10, 0]
    del ledger.doorbell.waiting[:4]
    assert ledger.top_up(window=10) == 4
    assert ledger.doorbell.sent == ids[:14]
    assert ledger.top_up(window=3) == 0


def test_only_what_is_due_is_sent(ledger: Ledger) -> None:
    due = ledger.rows(2) + ledger.rows(1, state="'flipped'")
    ledger.change(ledger.rows(1), "not_before = now() + interval '1 minute'")
    ledger.change(ledger.rows(1, state="'flipped'"), "not_before = now() + interval '1 minute'")
    ledger.rows(1, state="'done'")
    ledger.rows(1, state="'parked'", park_code="'diverged'")
    ledger.top_up()
    assert ledger.doorbell.sent == due


def test_a_lost_message_is_sent_again_after_a_while_and_only_into_an_empty_queue(ledger: Ledger) -> None:
    (lost,) = ledger.rows()
    ledger.top_up()
    ledger.pass_time(T + 1)
    assert ledger.top_up() == 0, "its message may be the one that waits"
    ledger.doorbell.take_all()
    assert ledger.top_up() == 1
    assert ledger.doorbell.sent == [lost, lost]
    ledger.doorbell.take_all()
    assert ledger.top_up() == 0, "it was sent just now"


def test_the_whole_broker_was_lost(ledger: Ledger) -> None:
    ids = ledger.rows(30)
    ledger.top_up(window=20)
    ledger.doorbell.take_all()
    assert ledger.top_up(window=20) == 10, "those that never had a message come first"
    ledger.doorbell.take_all()
    ledger.pass_time(T + 1)
    assert ledger.top_up(window=20) == 20
    assert sorted(ledger.doorbell.sent[30:]) == sorted(ids[:20])


def test_a_running_attempt_is_left_alone_and_a_dead_one_is_not(ledger: Ledger) -> None:
    # Keys are hashes, half of them below zero: both halves of the key space must be read back rightly.
    ids = ledger.rows(40)
    ledger.change(ids, "attempt_started_at = now()")
    running = ids[:20]
    signs: Any = ledger.connection.execute(
        "SELECT count(*) FILTER (WHERE hashtext(i) < 0), count(*) FILTER (WHERE hashtext(i) > 0)"
        " FROM unnest(%s::text[]) i",
        (running,),
    ).fetchone()
    assert all(signs), "both signs among the running ones"
    with psycopg.connect(ledger.url) as attempt:
        ledger.change(ids, f"lock_pid = {attempt.info.backend_pid}")
        for dataset in running:
            attempt.execute("SELECT pg_advisory_xact_lock(hashtext(%s::text))", (dataset,))
        assert ledger.top_up() == 20
        assert set(ledger.doorbell.take_all()) == set(ids[20:])
        assert ledger.top_up() == 0
    assert ledger.top_up() == 20
    assert set(ledger.doorbell.take_all()) == set(running)


def test_a_lock_in_another_key_space_or_database_is_not_the_datasets(ledger: Ledger, empty_database: str) -> None:
    (dataset,) = ledger.rows(attempt_started_at="now()")
    with psycopg.connect(ledger.url) as here, psycopg.connect(empty_database) as elsewhere:
        here.execute(
            "SELECT pg_advisory_xact_lock((hashtext(%s)::bigint >> 32)::int, hashtext(%s))", (dataset, dataset)
        )
        elsewhere.execute("SELECT pg_advisory_xact_lock(hashtext(%s::text))", (dataset,))
        assert ledger.top_up() == 1


@pytest.mark.parametrize("queues", [False, True])
def test_a_writer_that_has_the_lock_does_not_make_a_dead_attempt_look_alive(ledger: Ledger, *, queues: bool) -> None:
    (dataset,) = ledger.rows(attempt_started_at="now()")
    lock = "SELECT pg_advisory_xact_lock(hashtext(%s::text))"
    attempt = psycopg.connect(ledger.url)
    ledger.change([dataset], f"lock_pid = {attempt.info.backend_pid}")
    attempt.execute(lock, (dataset,))
    with psycopg.connect(ledger.url) as writer, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(writer.execute, lock, (dataset,)) if queues else None
        if queues:
            ungranted = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            wait_until(lambda: bool(ledger.execute(ungranted)), seconds=10, what="the writer queues")
        assert ledger.top_up() == 0, "it lives"
        attempt.close()
        (waiting.result() if waiting else writer.execute(lock, (dataset,)))
        assert ledger.top_up() == 1


def test_no_attempt_lives_as_long_as_writers_may_hold_the_lock(ledger: Ledger) -> None:
    """The dead attempt's dataset is sent, and the attempt that comes may note that it found the lock held."""
    (dataset,) = ledger.rows(attempt_started_at=f"now() - interval '{L + 1} seconds'")
    with psycopg.connect(ledger.url) as writer:
        writer.execute("SELECT pg_advisory_xact_lock(hashtext(%s::text))", (dataset,))
        assert ledger.top_up() == 1
    started = ledger.connection.execute("SELECT attempt_started_at FROM reroot.moves").fetchone()
    assert started == (None,)


def test_what_may_not_be_sent_is_no_probe(ledger: Ledger) -> None:
    held, *others = ledger.rows(3, warehouse="'w1'")
    ledger.change([held], "attempt_started_at = now(), not_before = now() - interval '1 hour'")
    ledger.connection.execute("INSERT INTO reroot.warehouses (warehouse, down_until) VALUES ('w1', now())")
    with psycopg.connect(ledger.url) as attempt:
        ledger.change([held], f"lock_pid = {attempt.info.backend_pid}")
        attempt.execute("SELECT pg_advisory_xact_lock(hashtext(%s::text))", (held,))
        assert ledger.top_up() == 1
    assert set(ledger.doorbell.sent) <= set(others)


def urgent_rows(ledger: Ledger) -> list[str]:
    """An open rename whose attempt has ended, and a withdrawal whose attempt died."""
    renamed, withdrawn = ledger.rows(2)
    ledger.journal(renamed, "rename")
    ledger.change([withdrawn], "state = 'flipped', attempt_started_at = now(), lock_pid = 0")
    ledger.journal(withdrawn, "withdraw")
    return [renamed, withdrawn]


def test_what_is_urgent_goes_before_everything_and_nothing_else_does(ledger: Ledger) -> None:
    plain = ledger.rows(3)
    settled = ledger.rows(1)
    urgent = urgent_rows(ledger)
    parked = ledger.rows(1, state="'parked'", park_code="'diverged'")
    ledger.journal(settled[0], "withdraw", closed=True)
    ledger.journal(plain[0], "register")
    ledger.journal(parked[0], "rename")
    assert ledger.top_up() == 6
    assert ledger.doorbell.sent[:2] == urgent
    assert set(ledger.doorbell.sent[2:]) == {*plain, *settled}
    assert ledger.marked_urgent() == set(urgent)


def test_a_full_window_holds_up_nothing_urgent(ledger: Ledger) -> None:
    ledger.rows(5)
    ledger.top_up(window=5)
    urgent = urgent_rows(ledger)
    ledger.rows(1)
    assert ledger.top_up(window=5) == 2
    assert ledger.doorbell.sent[5:] == urgent


def test_an_urgent_row_whose_message_was_lost_is_sent_again_after_seconds_however_long_the_queue(
    ledger: Ledger,
) -> None:
    urgent = urgent_rows(ledger)
    ledger.top_up()
    ledger.doorbell.take_all()
    ledger.rows(5)
    assert ledger.top_up(window=5) == 5
    ledger.change(urgent, "urgent = false")  # taken by a process that died before its claim
    ledger.pass_time(6)
    assert ledger.top_up(window=5) == 2
    assert ledger.doorbell.sent[-2:] == urgent
    assert ledger.marked_urgent() == set(urgent)
    assert ledger.top_up(window=5) == 0, "it was sent just now"


@pytest.mark.parametrize("action", ["rename", "withdraw"])
def test_what_an_attempt_has_ended_waits_as_long_as_it_said(ledger: Ledger, action: str) -> None:
    """Sent again at once, it would use up its attempts in the seconds that a catalog is in trouble."""
    (dataset,) = ledger.rows(1)
    ledger.change([dataset], "not_before = now() + interval '10 minutes'")
    ledger.journal(dataset, action)
    assert ledger.top_up() == 0
    ledger.change([dataset], "not_before = now()")
    assert ledger.top_up() == 1


def test_what_is_published_is_what_the_view_of_due_work_shows(ledger: Ledger) -> None:
    ledger.rows(3)
    ledger.rows(2, state="'flipped'")
    ledger.rows(1, state="'done'")
    urgent = urgent_rows(ledger)
    later = ledger.rows(4)
    ledger.change(later, "not_before = now() + interval '1 hour'")
    for dataset, action in zip(later, ("rename", "withdraw", "withdraw", "register"), strict=True):
        ledger.journal(dataset, action)
    shown = dict(ledger.execute("SELECT dataset_id, urgent FROM reroot.due"))
    ledger.top_up()
    assert set(ledger.doorbell.sent) == set(shown)
    assert {dataset for dataset, is_urgent in shown.items() if is_urgent} == set(urgent) == ledger.marked_urgent()


def test_flipped_datasets_have_a_share_of_the_window_behind_a_backlog(ledger: Ledger) -> None:
    backlog = ledger.rows(50)
    flipped = ledger.rows(8, state="'flipped'")
    ledger.change(flipped, "not_before = not_before + interval '1 minute'")
    assert ledger.top_up(window=10) == 10
    assert ledger.doorbell.take_all() == [*backlog[:5], *flipped[:5]]
    assert ledger.top_up(window=10) == 10
    assert ledger.doorbell.take_all() == [*backlog[5:12], *flipped[5:]], "what they do not need is for the others"


def test_what_the_broker_did_not_take_is_not_marked_and_goes_first_next_time(ledger: Ledger) -> None:
    ids = ledger.rows(6)
    ledger.doorbell.breaks_after = 2
    with pytest.raises(BrokerAwayError):
        ledger.top_up()
    assert ledger.published() == set(ids[:2])
    ledger.doorbell.breaks_after = None
    ledger.doorbell.take_all()
    assert ledger.top_up() == 4
    assert ledger.doorbell.sent == ids


def test_an_attempt_that_began_meanwhile_keeps_its_mark(ledger: Ledger) -> None:
    """A message may have been sent although the broker did not answer, and another round may have marked it since."""
    ids = ledger.rows(2)

    class Later(DoorbellDouble):
        def ring(self, queue: Queue, ids: Any) -> None:
            ledger.change(list(ids[:1]), "published_at = now() + interval '1 second'")
            raise BrokerAwayError("away", ids)

    ledger.doorbell = Later()
    with pytest.raises(BrokerAwayError):
        ledger.top_up()
    assert ledger.published() == {ids[0]}


def test_two_at_once_never_send_one_row_twice(ledger: Ledger) -> None:
    ids = ledger.rows(2000)
    doorbells = [DoorbellDouble() for _ in range(4)]
    start = threading.Barrier(len(doorbells))

    def sweep(doorbell: DoorbellDouble) -> None:
        connection = connect(ledger.url, role="test")
        start.wait()
        while top_up(connection, Queue.MOVES, doorbell, window=10_000, republish_after=T, longest_attempt=L):
            pass
        connection.close()

    threads = [threading.Thread(target=sweep, args=(doorbell,)) for doorbell in doorbells]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    sent = [name for doorbell in doorbells for name in doorbell.sent]
    assert len(sent) == len(ids)
    assert set(sent) == set(ids)


def test_a_row_that_somebody_holds_is_left_for_the_next_round(ledger: Ledger) -> None:
    held, free = ledger.rows(2)
    with psycopg.connect(ledger.url) as other:
        other.execute("SELECT 1 FROM reroot.moves WHERE dataset_id = %s FOR UPDATE", (held,))
        assert ledger.top_up() == 1
        assert ledger.doorbell.sent == [free]
    assert ledger.top_up() == 1


def test_queues_without_a_ledger_have_nothing_due(ledger: Ledger) -> None:
    ledger.rows(3)
    for queue in (Queue.BIRTHS, Queue.PROVISIONING):
        assert top_up(ledger.connection, queue, ledger.doorbell, window=10, republish_after=T, longest_attempt=L) == 0
    assert ledger.doorbell.sent == []


def test_what_there_is_to_do_now_and_next_is_known(ledger: Ledger) -> None:
    assert work(ledger.connection) == Work()
    ledger.change(ledger.rows(1), "not_before = now() + interval '1 hour'")
    ledger.change(ledger.rows(1), "not_before = now() + interval '40 seconds'")
    ledger.change(ledger.rows(1, state="'done'"), "not_before = now() + interval '1 second'")
    ledger.rows(1, state="'parked'", park_code="'diverged'")
    found = work(ledger.connection)
    assert not found.now
    assert found.due_in is not None
    assert 30 < found.due_in <= 40
    ledger.rows(1, attempt_started_at="now()")
    assert work(ledger.connection).now


def test_a_warehouse_that_is_away_is_asked_by_one_and_the_others_stay(ledger: Ledger) -> None:
    waiting = ledger.rows(5, warehouse="'away'")
    elsewhere = ledger.rows(2, warehouse="'answers'")
    unknown = ledger.rows(1)
    ledger.connection.execute(
        "INSERT INTO reroot.warehouses (warehouse, down_since, down_until)"
        " VALUES ('away', now(), now() + interval '1 minute'), ('answers', NULL, NULL)"
    )
    ledger.top_up()
    assert set(ledger.doorbell.sent) == {*elsewhere, *unknown}

    ledger.connection.execute("UPDATE reroot.warehouses SET down_until = now() WHERE warehouse = 'away'")
    ledger.top_up()
    ledger.top_up()
    assert ledger.doorbell.sent[3:] == waiting[:1]

    ledger.connection.execute("UPDATE reroot.warehouses SET down_until = NULL WHERE warehouse = 'away'")
    ledger.top_up()
    assert ledger.doorbell.sent[4:] == waiting[1:]


def test_a_lost_probe_does_not_keep_the_others_from_asking(ledger: Ledger) -> None:
    """Messages that the broker has lost, the queue never being empty: each row in turn asks."""
    waiting = ledger.rows(4, warehouse="'away'")
    ledger.connection.execute("INSERT INTO reroot.warehouses (warehouse, down_until) VALUES ('away', now())")
    ledger.doorbell.waiting.append("a message that stays")
    for number in range(4):
        assert [ledger.top_up(), ledger.top_up()] == [1, 0], "one at a time"
        assert ledger.doorbell.sent == waiting[: number + 1]
        ledger.pass_time(16)
    assert ledger.top_up() == 0


def test_what_is_urgent_asks_though_its_warehouse_is_away(ledger: Ledger) -> None:
    """To settle a rename may need nothing but reads, which go on in Lakekeeper's maintenance mode."""
    ledger.rows(3, warehouse="'away'")
    urgent = urgent_rows(ledger)
    ledger.change(urgent, "warehouse = 'away'")
    ledger.connection.execute("INSERT INTO reroot.warehouses (warehouse, down_until) VALUES ('away', now())")
    assert ledger.top_up() == len(urgent)
    assert sorted(ledger.doorbell.sent) == sorted(urgent)


def test_a_peek_reads_the_index_of_what_is_urgent(ledger: Ledger) -> None:
    """Every attempt makes it: what is urgent must not cost a look at every row of the ledger."""
    ids = ledger.rows(3000)
    ledger.change(ids, "updated_at = now()")  # as rows are after their first attempts, statistics not yet gathered
    plan = ledger.execute("EXPLAIN " + PEEK.replace("%s", f"'{ids[0]}'"))
    assert "moves_urgent" in str(plan)
    assert "Seq Scan" not in str(plan)
