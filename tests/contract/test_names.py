"""Names that people really give to tables, on every catalog: what a plan lets through is moved right, or untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.contract.capabilities import Capability, needs
from worker.identifiers import QUARANTINE_NAMESPACE, quarantine_identifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind

if TYPE_CHECKING:
    from tests.contract.subjects import Subject
    from worker.identifiers import TableIdentifier

NAMES: Final = ["DS_1", "a.b", "Größe", "é" * 120, "日本", "a b", "a?b#c&d=e;f", 'a"b', "x" * 255]
NOT_IN_A_PATH: Final = ["50%", "a%2Fb", "a\\b"]
"""Jetty 12 answers a path that holds these with a 400 in HTML, however they are written (reference server 1.11.0)."""

JETTY_12: Final = "rest-1.11.0"


def given(subject: Subject) -> TableIdentifier:
    """A table with a plain name. The others it gets by renames: in a body every server takes any name."""
    subject.make(subject.old())
    subject.make_namespaces(subject.place)
    subject.make_namespaces((QUARANTINE_NAMESPACE,))
    return subject.old()


def may_be_left(subject: Subject) -> None:
    """End the test before it leaves a table on a server that is not ours: a name with a dot cannot be dropped there."""
    if subject.foreign and Capability.ANY_NAME in subject.lacks:
        pytest.xfail(subject.lacks[Capability.ANY_NAME])


def follows_every_move(subject: Subject, old: TableIdentifier) -> None:
    """Through the requests of a move by rename, of a withdrawal and of its return: one name at a time."""
    catalog, new, fenced = subject.catalog, subject.new(old.name), quarantine_identifier(old.name, 4711)
    uuid = catalog.load(old).uuid
    assert list(catalog.list_tables(subject.flat)) == [old]
    for source, target in [(old, new), (new, fenced), (fenced, old)]:
        catalog.rename(source, target)
        assert catalog.load(target).uuid == uuid
        with pytest.raises(CatalogError) as caught:
            catalog.load(source)
        assert caught.value.code is ErrorCode.TABLE_MISSING


def refused_at_sight(subject: Subject, name: TableIdentifier) -> bool:
    """Whether a server that nobody knows refuses the name in a path."""
    try:
        subject.catalog.load(name)
    except CatalogError as error:
        return error.code is ErrorCode.INVALID
    return False


@needs(Capability.ANY_NAME)
def test_every_name_goes_along(subject: Subject) -> None:
    may_be_left(subject)
    last = given(subject)
    for name in NAMES:
        subject.catalog.rename(last, last := subject.old(name))
        follows_every_move(subject, last)
    subject.catalog.drop(last)
    assert list(subject.catalog.list_tables(subject.flat)) == []


def test_a_name_that_no_path_may_hold_goes_along_or_is_refused_at_the_first_look(
    subject: Subject, request: pytest.FixtureRequest
) -> None:
    last = given(subject)
    for name in NOT_IN_A_PATH:
        subject.catalog.rename(last, last := subject.old(name))
        if JETTY_12 not in request.node.name and not (subject.foreign and refused_at_sight(subject, last)):
            follows_every_move(subject, last)
            continue
        with pytest.raises(CatalogError) as caught:
            subject.catalog.load(last)
        assert (caught.value.code, caught.value.kind) == (ErrorCode.INVALID, ErrorKind.PERMANENT)
        assert list(subject.catalog.list_tables(subject.flat)) == [last]


@needs(Capability.SECOND_NAME, Capability.FREE_PLACE, Capability.PLAIN_YES, Capability.ANY_NAME)
def test_a_second_name_of_any_kind_leads_to_the_table(subject: Subject) -> None:
    may_be_left(subject)
    old = subject.old("Größe 1.2")
    subject.catalog.rename(given(subject), old)
    table = subject.catalog.load(old)
    subject.catalog.register(subject.new(old.name), table.metadata_location)
    assert subject.catalog.load(subject.new(old.name)).uuid == table.uuid
