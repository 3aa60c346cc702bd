"""Slugs when several transactions ask for the same one: nobody fails, nobody waits without a bound."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from tests.support.other_programs import Session, in_background, rows, session, until_stuck, value

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.every_postgres

WORKSPACE: Final = "00000000-0000-0000-0000-000000000001"


class Programs:
    """Two programs, each in a transaction, and one that watches."""

    def __init__(self, first: Session, second: Session, watcher: Session) -> None:
        self.first = first
        self.second = second
        self.watcher = watcher


@pytest.fixture
def programs(database: str) -> Iterator[Programs]:
    """They wait for each other as long as it takes, unless the test says otherwise."""
    with ExitStack() as stack:
        first, second = (stack.enter_context(session(database, autocommit=False)) for _ in range(2))
        for one in (first, second):
            one.execute("SET reroot.slug_patience = '30'")
            one.commit()
        yield Programs(first, second, stack.enter_context(session(database)))


def add(program: Session, *names: str, slug: str | None = None) -> list[str]:
    """Insert catalogs in one statement and return their slugs."""
    statement = (
        "INSERT INTO catalogs (workspace_id, name, slug) SELECT %s, name, %s"
        " FROM unnest(%s::text[]) WITH ORDINALITY AS t (name, n) ORDER BY n RETURNING slug"
    )
    return [slug for (slug,) in rows(program, statement, (WORKSPACE, slug, list(names)))]


def test_the_second_gets_the_next_number_when_the_first_commits(programs: Programs) -> None:
    assert add(programs.first, "Sales") == ["sales"]
    second = in_background(lambda: add(programs.second, "sales"))
    until_stuck(programs.watcher, programs.second)
    assert not second.done()
    programs.first.commit()
    assert second.result(timeout=20) == ["sales_2"]


def test_the_second_gets_the_slug_itself_when_the_first_rolls_back(programs: Programs) -> None:
    add(programs.first, "Sales")
    second = in_background(lambda: add(programs.second, "Sales"))
    until_stuck(programs.watcher, programs.second)
    programs.first.rollback()
    assert second.result(timeout=20) == ["sales"]


def test_the_second_does_not_wait_for_one_that_does_not_end(programs: Programs) -> None:
    programs.second.execute("SET reroot.slug_patience = DEFAULT")
    add(programs.first, "Sales", "Sales")
    assert add(programs.second, "Sales", "Sales") == ["sales_3", "sales_4"]
    programs.second.commit()
    programs.first.commit()
    assert value(programs.watcher, "SELECT count(DISTINCT slug) FROM catalogs") == 4


def test_the_same_names_in_another_order_are_no_deadlock(programs: Programs) -> None:
    for one in (programs.first, programs.second):
        one.execute("SET reroot.slug_patience = DEFAULT")
    add(programs.first, "Sales")
    add(programs.second, "Finance")
    first = in_background(lambda: add(programs.first, "Finance"))
    second = in_background(lambda: add(programs.second, "Sales"))
    assert {*first.result(timeout=20), *second.result(timeout=20)} == {"finance_2", "sales_2"}
    programs.first.commit()
    programs.second.commit()


def test_different_names_do_not_wait_for_each_other(programs: Programs) -> None:
    add(programs.first, "Sales")
    assert add(programs.second, "Finance") == ["finance"]


def test_a_slug_that_a_program_gives_is_seen_by_one_that_is_being_made(programs: Programs) -> None:
    add(programs.first, "Anything", slug="sales")
    second = in_background(lambda: add(programs.second, "Sales"))
    until_stuck(programs.watcher, programs.second)
    programs.first.commit()
    assert second.result(timeout=20) == ["sales_2"]


def test_of_a_slug_that_is_given_while_it_is_made_the_unique_index_decides(programs: Programs) -> None:
    programs.second.execute("SET reroot.slug_patience = DEFAULT")
    add(programs.first, "Sales")
    second = in_background(lambda: add(programs.second, "Anything", slug="sales"))
    until_stuck(programs.watcher, programs.second)
    programs.first.commit()
    with pytest.raises(psycopg.errors.UniqueViolation):
        second.result(timeout=20)


def test_many_programs_at_once_share_out_the_numbers(database: str, programs: Programs) -> None:
    def program() -> list[str]:
        with session(database) as connection:
            connection.execute("SET reroot.slug_patience = '30'")
            return [slug for _ in range(15) for slug in add(connection, "Sales")]

    running = [in_background(program) for _ in range(6)]
    slugs = [slug for one in running for slug in one.result(timeout=60)]
    assert sorted(slugs) == sorted(["sales", *(f"sales_{n}" for n in range(2, 91))])


def test_locks_do_not_touch_the_key_space_of_the_datasets(programs: Programs) -> None:
    add(programs.first, "Sales")
    keys = "SELECT classid, objsubid FROM pg_locks WHERE locktype = 'advisory' AND granted"
    assert rows(programs.watcher, keys) == [(0x5245524F, 2)]
