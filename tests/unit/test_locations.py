"""Two spellings of one place are one; two places never become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.lakehouse.locations import folder, local_path, may_be_local, normalise

PATHS = st.text(st.characters(exclude_characters="\0"), min_size=1).map(lambda text: "/" + text.lstrip("/"))


@pytest.mark.parametrize(
    "spelling", ["file:/lake/a b/t", "file:///lake/a b/t", "file://localhost/lake/a b/t", "/lake/a b/t"]
)
def test_spellings_of_one_local_place(spelling: str) -> None:
    assert normalise(spelling) == "file:///lake/a b/t"
    assert local_path(spelling) == "/lake/a b/t"


@pytest.mark.parametrize(
    "location", ["s3://lake/t", "s3a://lake/t", "gs://lake/file:/t", "abfss://c@a.dfs.core.windows.net/t", "hdfs:///t"]
)
def test_other_schemes_stay_as_they_are(location: str) -> None:
    assert normalise(location) == location
    assert local_path(location) is None


def test_nothing_is_decoded() -> None:
    assert local_path("file:/lake/kind=a%2Fb") == "/lake/kind=a%2Fb"


def test_a_folder_may_end_with_a_slash() -> None:
    assert folder("file:/lake/t/") == folder("file:///lake/t")
    assert folder("s3://lake/t/") == folder("s3://lake/t")


@given(PATHS)
def test_normalising_twice_changes_nothing(path: str) -> None:
    for spelling in (path, "file:" + path, "file://" + path):
        assert normalise(normalise(spelling)) == normalise(spelling)


@given(PATHS, PATHS)
def test_two_places_stay_two(one: str, other: str) -> None:
    assert (normalise(one) == normalise(other)) == (one.lstrip("/") == other.lstrip("/"))


@pytest.mark.parametrize(
    ("told", "local"),
    [
        # The setting, the metadata file's location, the table's.
        ((None, "file:/w/m.json", "/w"), True),
        (("file:///w", "file:/w/m.json", "/w"), True),
        (("s3://lake", "file:/w/m.json", "/w"), False),
        ((None, "s3://lake/m.json", "file:///w"), False),
        ((None, "file:///w/m.json", "s3://lake"), False),
        (("file:///w", "s3://lake/m.json", "s3://lake"), False),
        ((None,), False),
    ],
)
def test_a_warehouse_is_local_where_all_that_is_known_of_it_is(told: tuple[str | None, ...], *, local: bool) -> None:
    assert may_be_local(*told) is local
