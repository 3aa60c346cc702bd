"""What the moves rely on of a catalog, asked of every adapter and of the double."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.contract.capabilities import Capability, needs
from worker.identifiers import TableIdentifier
from worker.lakehouse.port import Catalog, CatalogError, ErrorCode, ErrorKind, SoakError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.subjects import Subject

CLIENTS = 8


def refused(call: Callable[[], object]) -> CatalogError:
    """The error that a call ends with."""
    with pytest.raises(CatalogError) as caught:
        call()
    return caught.value


def code_and_kind(call: Callable[[], object]) -> tuple[ErrorCode, ErrorKind]:
    error = refused(call)
    return error.code, error.kind


MISSING = (ErrorCode.TABLE_MISSING, ErrorKind.PERMANENT)
TAKEN = (ErrorCode.ALREADY_EXISTS, ErrorKind.PERMANENT)
NO_NAMESPACE = (ErrorCode.NAMESPACE_MISSING, ErrorKind.PERMANENT)


needs_a_second_name = needs(Capability.SECOND_NAME, Capability.FREE_PLACE, Capability.PLAIN_YES)


def moved(subject: Subject) -> tuple[TableIdentifier, TableIdentifier]:
    """A table under its old name and, by a second registration, under its new one."""
    old, new = subject.old(), subject.new()
    subject.make(old)
    subject.make_namespaces(subject.place)
    subject.catalog.register(new, subject.catalog.load(old).metadata_location)
    return old, new


class TestLoad:
    def test_shows_what_the_table_is(self, subject: Subject) -> None:
        subject.make(subject.old(), rows=10, snapshots=3)
        table = subject.catalog.load(subject.old())
        assert table.identifier == subject.old()
        assert len(table.uuid) == 36
        assert table.metadata_location.startswith(subject.scheme)
        assert table.location.startswith(subject.scheme)
        assert (table.format_version, table.sequence_number, table.row_count) == (2, 3, 30)
        assert table.snapshot_id in table.snapshot_ids

    def test_is_asked_afresh_each_time(self, subject: Subject) -> None:
        subject.make(subject.old())
        before = subject.catalog.load(subject.old())
        subject.commit(subject.old())
        after = subject.catalog.load(subject.old())
        assert after.uuid == before.uuid
        assert after.metadata_location != before.metadata_location
        assert after.snapshot_id != before.snapshot_id
        assert after.row_count == 11

    @needs(Capability.HISTORY)
    def test_tells_what_was_before(self, subject: Subject) -> None:
        subject.make(subject.old(), snapshots=3)
        before = subject.catalog.load(subject.old())
        subject.commit(subject.old())
        after = subject.catalog.load(subject.old())
        assert len(before.snapshot_ids) == 3
        assert after.snapshot_ids > before.snapshot_ids
        assert before.metadata_location in after.metadata_log

    def test_missing_table(self, subject: Subject) -> None:
        subject.make_namespaces(subject.flat)
        assert code_and_kind(lambda: subject.catalog.load(subject.old())) == MISSING

    def test_missing_namespace_is_a_missing_table(self, subject: Subject) -> None:
        assert code_and_kind(lambda: subject.catalog.load(subject.new())) == MISSING
        assert not subject.catalog.table_exists(subject.new())

    def test_says_whether_it_has_the_table_without_showing_it(self, subject: Subject) -> None:
        subject.make(subject.old())
        assert subject.catalog.table_exists(subject.old())
        assert not subject.catalog.table_exists(subject.old("ds_2"))

    @needs(Capability.FILE_NEEDED)
    def test_missing_metadata_file_is_not_a_missing_table(self, subject: Subject) -> None:
        subject.make(subject.old())
        location = subject.catalog.load(subject.old()).metadata_location
        subject.lose(location)
        error = refused(lambda: subject.catalog.load(subject.old()))
        assert (error.code, error.kind) == (ErrorCode.FILE_MISSING, ErrorKind.PERMANENT)
        assert error.location in {location, None}
        assert subject.old() in list(subject.catalog.list_tables(subject.flat))


class TestRegister:
    @needs_a_second_name
    def test_a_second_name_shows_the_same_table(self, subject: Subject) -> None:
        old, new = moved(subject)
        there, here = subject.catalog.load(old), subject.catalog.load(new)
        assert replace(here, identifier=old) == there

    @needs_a_second_name
    def test_twice(self, subject: Subject) -> None:
        old, new = moved(subject)
        location = subject.catalog.load(old).metadata_location
        assert code_and_kind(lambda: subject.catalog.register(new, location)) == TAKEN

    def test_onto_the_name_of_another_table(self, subject: Subject) -> None:
        subject.make(subject.old())
        subject.make(subject.new())
        foreign = subject.catalog.load(subject.new())
        location = subject.catalog.load(subject.old()).metadata_location
        assert code_and_kind(lambda: subject.catalog.register(subject.new(), location)) == TAKEN
        assert subject.catalog.load(subject.new()) == foreign

    @needs(Capability.NAMESPACE_FIRST)
    def test_into_a_missing_namespace(self, subject: Subject) -> None:
        subject.make(subject.old())
        location = subject.catalog.load(subject.old()).metadata_location
        assert code_and_kind(lambda: subject.catalog.register(subject.new(), location)) == NO_NAMESPACE

    @needs(Capability.FREE_PLACE)
    def test_a_missing_file_leaves_no_name_behind(self, subject: Subject) -> None:
        subject.make(subject.old())
        subject.make_namespaces(subject.place)
        location = subject.catalog.load(subject.old()).metadata_location
        subject.lose(location)
        assert code_and_kind(lambda: subject.catalog.register(subject.new(), location)) == (
            ErrorCode.FILE_MISSING,
            ErrorKind.PERMANENT,
        )
        assert list(subject.catalog.list_tables(subject.place)) == []

    @needs_a_second_name
    def test_two_names_fork_and_neither_follows_the_other(self, subject: Subject) -> None:
        old, new = moved(subject)
        registered = subject.catalog.load(old)
        subject.commit(new)
        assert subject.catalog.load(old) == registered
        subject.commit(old)
        one, other = subject.catalog.load(old), subject.catalog.load(new)
        assert one.uuid == other.uuid
        assert one.metadata_location not in other.metadata_log
        assert other.metadata_location not in one.metadata_log

    @needs_a_second_name
    @needs(Capability.HISTORY)
    def test_both_sides_of_a_fork_remember_where_they_parted(self, subject: Subject) -> None:
        old, new = moved(subject)
        registered = subject.catalog.load(old).metadata_location
        subject.commit(new)
        subject.commit(old)
        assert registered in subject.catalog.load(old).metadata_log & subject.catalog.load(new).metadata_log


class TestRename:
    def test_across_levels_keeps_the_table(self, subject: Subject) -> None:
        subject.make(subject.old())
        subject.make_namespaces(subject.place)
        before = subject.catalog.load(subject.old())
        files = subject.files()
        subject.catalog.rename(subject.old(), subject.new())
        after = subject.catalog.load(subject.new())
        assert replace(after, identifier=subject.old()) == before
        assert code_and_kind(lambda: subject.catalog.load(subject.old())) == MISSING
        assert subject.files() == files

    def test_missing_source(self, subject: Subject) -> None:
        subject.make_namespaces(subject.flat)
        subject.make_namespaces(subject.place)
        assert code_and_kind(lambda: subject.catalog.rename(subject.old(), subject.new())) == MISSING

    @needs(Capability.TAKEN_SAID)
    def test_onto_a_taken_name(self, subject: Subject) -> None:
        subject.make(subject.old())
        subject.make(subject.new())
        before = subject.catalog.load(subject.old()), subject.catalog.load(subject.new())
        assert code_and_kind(lambda: subject.catalog.rename(subject.old(), subject.new())) == TAKEN
        assert (subject.catalog.load(subject.old()), subject.catalog.load(subject.new())) == before

    def test_into_a_missing_namespace(self, subject: Subject) -> None:
        subject.make(subject.old())
        assert code_and_kind(lambda: subject.catalog.rename(subject.old(), subject.new())) == NO_NAMESPACE

    def test_missing_metadata_file_is_said_or_the_table_is_renamed(self, subject: Subject) -> None:
        subject.make(subject.old())
        subject.make_namespaces(subject.place)
        subject.lose(subject.catalog.load(subject.old()).metadata_location)
        error = _attempted(lambda: subject.catalog.rename(subject.old(), subject.new()))
        assert error is None or (error.code, error.kind) == (ErrorCode.FILE_MISSING, ErrorKind.PERMANENT)
        stands, free = (subject.place, subject.flat) if error is None else (subject.flat, subject.place)
        assert [name.name for name in subject.catalog.list_tables(stands)] == ["ds_1"]
        assert list(subject.catalog.list_tables(free)) == []


class TestDrop:
    @needs_a_second_name
    def test_leaves_every_file_and_the_other_name(self, subject: Subject) -> None:
        old, new = moved(subject)
        files, kept = subject.files(), subject.catalog.load(new)
        subject.catalog.drop(old)
        assert code_and_kind(lambda: subject.catalog.load(old)) == MISSING
        assert subject.files() == files
        assert subject.catalog.load(new) == kept
        subject.catalog.soak(kept)

    def test_missing_table(self, subject: Subject) -> None:
        subject.make_namespaces(subject.flat)
        assert code_and_kind(lambda: subject.catalog.drop(subject.old())) == MISSING

    def test_missing_namespace_is_a_missing_table(self, subject: Subject) -> None:
        assert code_and_kind(lambda: subject.catalog.drop(subject.new())) == MISSING

    def test_a_name_whose_metadata_file_is_gone(self, subject: Subject) -> None:
        subject.make(subject.old())
        subject.lose(subject.catalog.load(subject.old()).metadata_location)
        subject.catalog.drop(subject.old())
        assert list(subject.catalog.list_tables(subject.flat)) == []


class TestNamespaces:
    def test_parents_first_then_each_is_seen(self, subject: Subject) -> None:
        parent = subject.place[:1]
        assert not subject.catalog.namespace_exists(subject.place)
        subject.catalog.create_namespace(parent)
        assert subject.catalog.namespace_exists(parent)
        assert not subject.catalog.namespace_exists(subject.place)
        subject.catalog.create_namespace(subject.place)
        assert subject.catalog.namespace_exists(subject.place)

    def test_twice(self, subject: Subject) -> None:
        subject.make_namespaces(subject.place)
        assert code_and_kind(lambda: subject.catalog.create_namespace(subject.place)) == TAKEN

    def test_a_parent_that_came_with_its_child_is_there(self, subject: Subject) -> None:
        subject.make_namespaces(subject.place)
        assert subject.catalog.namespace_exists(subject.place[:1])


class TestListing:
    @needs(Capability.WHOLE_LISTING)
    def test_goes_through_every_page_and_stays_in_the_namespace(self, subject: Subject) -> None:
        names = {f"ds_{number}" for number in range(5)}
        for name in names:
            subject.make(subject.new(name))
        subject.make(TableIdentifier(subject.place[:1], "ds_parent"))
        listed = list(subject.catalog.list_tables(subject.place))
        assert len(listed) == 5
        assert set(listed) == {subject.new(name) for name in names}

    def test_empty(self, subject: Subject) -> None:
        subject.make_namespaces(subject.flat)
        assert list(subject.catalog.list_tables(subject.flat)) == []

    @needs(Capability.ABSENCE_LISTED)
    def test_missing_namespace(self, subject: Subject) -> None:
        assert code_and_kind(lambda: list(subject.catalog.list_tables(subject.place))) == NO_NAMESPACE


class TestStorage:
    @needs_a_second_name
    def test_soak_of_a_whole_table_under_both_names(self, subject: Subject) -> None:
        old, new = moved(subject)
        subject.commit(new)
        subject.catalog.soak(subject.catalog.load(old))
        subject.catalog.soak(subject.catalog.load(new))

    def test_soak_sees_that_the_metadata_file_is_gone(self, subject: Subject) -> None:
        subject.make(subject.old())
        table = subject.catalog.load(subject.old())
        subject.lose(table.metadata_location)
        with pytest.raises(SoakError, match="is not in storage"):
            subject.catalog.soak(table)

    @needs(Capability.HISTORY)
    def test_a_missing_file_is_told_from_one_that_is_there(self, subject: Subject) -> None:
        subject.make(subject.old(), snapshots=2)
        table = subject.catalog.load(subject.old())
        earlier = min(table.metadata_log)
        assert not subject.catalog.file_missing(earlier, table)
        subject.lose(earlier)
        assert subject.catalog.file_missing(earlier, table)

    @needs(Capability.HISTORY)
    def test_nothing_is_certainly_missing_when_the_table_itself_is_not_found(self, subject: Subject) -> None:
        subject.make(subject.old(), snapshots=2)
        table = subject.catalog.load(subject.old())
        subject.lose(min(table.metadata_log))
        subject.lose(table.metadata_location)
        assert not subject.catalog.file_missing(min(table.metadata_log), table)


class TestRaces:
    """Eight clients at once: one winner, and every loser learns that it lost, or that it must look."""

    @needs_a_second_name
    def test_for_one_name(self, subject: Subject) -> None:
        subject.make(subject.old())
        subject.make_namespaces(subject.place)
        location = subject.catalog.load(subject.old()).metadata_location
        winners, losers = _race(subject, lambda catalog, _: catalog.register(subject.new(), location))
        assert winners == 1
        assert _accounted(losers, ErrorCode.ALREADY_EXISTS)

    @needs(Capability.TAKEN_SAID)
    def test_of_eight_tables_renamed_to_one_name(self, subject: Subject) -> None:
        for number in range(CLIENTS):
            subject.make(subject.old(f"ds_{number}"))
        subject.make_namespaces(subject.place)
        winners, losers = _race(
            subject, lambda catalog, number: catalog.rename(subject.old(f"ds_{number}"), subject.new())
        )
        assert winners == 1
        assert _accounted(losers, ErrorCode.ALREADY_EXISTS)
        assert len(list(subject.catalog.list_tables(subject.flat))) == CLIENTS - 1

    def test_of_one_table_renamed_to_eight_names(self, subject: Subject) -> None:
        subject.make(subject.old())
        subject.make_namespaces(subject.place)
        winners, losers = _race(
            subject, lambda catalog, number: catalog.rename(subject.old(), subject.new(f"ds_{number}"))
        )
        assert winners == 1
        assert _accounted(losers, ErrorCode.TABLE_MISSING)
        assert len(list(subject.catalog.list_tables(subject.place))) == 1

    @needs_a_second_name
    def test_to_drop_one_name(self, subject: Subject) -> None:
        old, new = moved(subject)
        winners, losers = _race(subject, lambda catalog, _: catalog.drop(old))
        assert winners == 1
        assert _accounted(losers, ErrorCode.TABLE_MISSING)
        subject.catalog.load(new)

    def test_to_create_one_namespace(self, subject: Subject) -> None:
        winners, losers = _race(subject, lambda catalog, _: catalog.create_namespace(subject.flat))
        assert winners == 1
        assert _accounted(losers, ErrorCode.ALREADY_EXISTS)
        assert subject.catalog.namespace_exists(subject.flat)


def _attempted(call: Callable[[], object]) -> CatalogError | None:
    """The error that a call ends with; None when it succeeds."""
    try:
        call()
    except CatalogError as error:
        return error
    return None


def _race(subject: Subject, run: Callable[[Catalog, int], None]) -> tuple[int, list[CatalogError]]:
    barrier = threading.Barrier(CLIENTS, timeout=30)

    def one(number: int) -> CatalogError | None:
        client = subject.client()
        # Whatever a client asks once, it asks before the start.
        client.namespace_exists(subject.flat)
        barrier.wait()
        return _attempted(lambda: run(client, number))

    with ThreadPoolExecutor(CLIENTS) as pool:
        ends = list(pool.map(one, range(CLIENTS)))
    return ends.count(None), [end for end in ends if end is not None]


def _accounted(losers: list[CatalogError], code: ErrorCode) -> bool:
    # The reference server answers some losers with a bare 500: that is no statement, and must be told as none.
    return len(losers) == CLIENTS - 1 and all(error.code is code or error.kind is ErrorKind.UNKNOWN for error in losers)
