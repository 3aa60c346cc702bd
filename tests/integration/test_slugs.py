"""Which slug a name gets, in SQL, its one source."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Final

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.other_programs import Session, rows, session, value
from worker.identifiers import RESERVED_CATALOG_SLUGS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.every_postgres

SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_]*", re.ASCII)
WORKSPACE: Final = "00000000-0000-0000-0000-000000000001"
LONG: Final = "x" * 63


@pytest.fixture
def program(database: str) -> Iterator[Session]:
    """A program of the control plane."""
    with session(database) as connection:
        yield connection


def catalog(program: Session, name: str, *, workspace: str = WORKSPACE, slug: str | None = None) -> str:
    """Insert a catalog and return its slug."""
    statement = "INSERT INTO catalogs (workspace_id, name, slug) VALUES (%s, %s, %s) RETURNING slug"
    return str(value(program, statement, (workspace, name, slug)))


def schema(program: Session, name: str, *, parent: str = WORKSPACE) -> str:
    """Insert a schema and return its slug."""
    statement = "INSERT INTO schemas (catalog_id, name) VALUES (%s, %s) RETURNING slug"
    return str(value(program, statement, (parent, name)))


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Sales", "sales"),
        ("  Sales & Marketing (EU) ", "sales_marketing_eu"),
        ("sales__eu", "sales_eu"),
        ("_private", "private"),
        ("2024", "2024"),
        ("Q1.2024/final-v2", "q1_2024_final_v2"),
        ("Été à Paris", "ete_a_paris"),
        ("E\u0301te\u0301", "ete"),
        ("ÀÉÎÕÜ Ç Ñ Š Ž Å", "aeiou_c_n_s_z_a"),
        ("Vĩnh Phúc \u2013 Đà Nẵng", "vinh_phuc_da_nang"),
        ("Straße", "strasse"),
        ("STRAẞE", "strasse"),
        ("Ærø", "aero"),
        ("ǽrǿ ǼRǾ", "aero_aero"),
        ("Łódź", "lodz"),
        ("ĐAKOVO đakovo", "dakovo_dakovo"),
        ("Œuvre œuvre", "oeuvre_oeuvre"),
        ("Ørsted", "orsted"),
        ("İstanbul", "istanbul"),
        ("Sales 📈", "sales"),
        ("売上 2024", "2024"),
        ("line\nbreak\ttab", "line_break_tab"),
        ("a" * 70, "a" * 63),
        ("a" * 62 + " b", "a" * 62),
    ],
)
def test_a_name_becomes_a_slug(program: Session, name: str, slug: str) -> None:
    assert catalog(program, name) == slug
    assert schema(program, name) == slug
    assert value(program, "SELECT reroot.slugify(%s, 'id')", (name,)) == slug


@pytest.mark.parametrize("name", ["", "   ", "___", "продажи", "売上", "📈", "\u0301", "…"])
def test_a_name_without_a_latin_letter_or_digit_takes_the_id(program: Session, name: str) -> None:
    identity = uuid.uuid4()
    statement = "INSERT INTO catalogs (id, workspace_id, name) VALUES (%s, %s, %s) RETURNING slug"
    assert value(program, statement, (identity, WORKSPACE, name)) == f"id_{identity.hex}"


@pytest.mark.parametrize("identity", ["Org/7", "ключ", "", None, "x" * 200, "ÄÖ"])
def test_any_id_makes_a_slug(program: Session, identity: str | None) -> None:
    slug = str(value(program, "SELECT reroot.slugify('', %s)", (identity,)))
    assert SLUG.fullmatch(slug)
    assert len(slug) <= 63


def test_names_that_ask_for_the_same_slug_are_numbered(program: Session) -> None:
    assert [catalog(program, name) for name in ("Sales", "sales", "SALES!", "Sales 2", "Sales")] == [
        *("sales", "sales_2", "sales_3", "sales_2_2", "sales_4")
    ]


def test_a_number_that_a_name_has_taken_is_passed_over(program: Session) -> None:
    assert [catalog(program, name) for name in ("Sales 2", "Sales", "Sales")] == ["sales_2", "sales", "sales_3"]


def test_names_that_the_cut_makes_equal_are_numbered_within_the_length(program: Session) -> None:
    slugs = [catalog(program, LONG + tail) for tail in "abcdefghijkl"]
    assert slugs[:3] == [LONG, LONG[:61] + "_2", LONG[:61] + "_3"]
    assert slugs[-1] == LONG[:60] + "_12"
    assert max(map(len, slugs)) == 63


def test_a_hundred_twins(program: Session) -> None:
    slugs = rows(
        program,
        "INSERT INTO schemas (catalog_id, name) SELECT %s, 'Public' FROM generate_series(1, 250) RETURNING slug",
        (WORKSPACE,),
    )
    assert [slug for (slug,) in slugs] == ["public", *(f"public_{n}" for n in range(2, 251))]


def test_uniqueness_ends_at_the_workspace_and_at_the_catalog(program: Session) -> None:
    for _ in range(2):
        other = str(uuid.uuid4())
        assert catalog(program, "Sales", workspace=other) == "sales"
        assert schema(program, "Sales", parent=other) == "sales"


def test_reserved_slugs_are_reserved_for_catalogs_alone(program: Session) -> None:
    for name in sorted(RESERVED_CATALOG_SLUGS):
        assert catalog(program, name.title().replace("_", " ")) == f"{name}_2"
        assert schema(program, name) == name
        with pytest.raises(psycopg.errors.CheckViolation, match=f'slug "{name}" is reserved'):
            catalog(program, "x", slug=name)


def test_a_valid_slug_that_is_given_is_kept(program: Session) -> None:
    assert catalog(program, "Sales", slug="verkauf_") == "verkauf_"
    assert catalog(program, "verkauf") == "verkauf"
    with pytest.raises(psycopg.errors.UniqueViolation):
        catalog(program, "Another", slug="verkauf")


@pytest.mark.parametrize("slug", ["", "Sales", "_sales", "a-b", "a.b", "é", "a\n", "x" * 64, "a b"])
def test_an_invalid_slug_that_is_given_is_refused(program: Session, slug: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="is invalid") as refusal:
        catalog(program, "Sales", slug=slug)
    assert "Left out, it is made from the name" in str(refusal.value)


def test_renaming_changes_no_slug_and_a_set_slug_cannot_be_changed(program: Session) -> None:
    catalog(program, "Sales")
    assert rows(program, "UPDATE catalogs SET name = 'Verkauf' RETURNING name, slug") == [("Verkauf", "sales")]
    program.execute("UPDATE catalogs SET slug = 'sales'")
    for change in ("'verkauf'", "NULL", "slug || '_2'"):
        with pytest.raises(psycopg.errors.CheckViolation, match="cannot be changed"):
            program.execute(f"UPDATE catalogs SET slug = {change}".encode())
    assert rows(program, "SELECT slug FROM catalogs") == [("sales",)]


def test_the_backstop_holds_where_triggers_do_not_run(program: Session) -> None:
    program.execute("SET session_replication_role = replica")
    for slug in ("Bad", "datasets"):
        with pytest.raises(psycopg.errors.CheckViolation):
            catalog(program, "x", slug=slug)


def test_a_slug_is_made_from_the_name_that_other_triggers_leave(program: Session) -> None:
    program.execute(
        "CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.name := regexp_replace(NEW.name, '^tmp ', ''); RETURN NEW; END $$"
    )
    program.execute("CREATE TRIGGER tidy BEFORE INSERT ON catalogs FOR EACH ROW EXECUTE FUNCTION tidy()")
    assert catalog(program, "tmp Sales") == "sales"


def test_copy_and_upsert_give_slugs_too(program: Session) -> None:
    with program.cursor().copy("COPY catalogs (workspace_id, name) FROM STDIN") as copy:
        for _ in range(3):
            copy.write_row((WORKSPACE, "Sales"))
    assert {slug for (slug,) in rows(program, "SELECT slug FROM catalogs")} == {"sales", "sales_2", "sales_3"}
    upsert = (
        "INSERT INTO catalogs (id, workspace_id, name) SELECT id, workspace_id, 'Renamed' FROM catalogs"
        " ON CONFLICT (id) DO UPDATE SET name = excluded.name RETURNING name, slug"
    )
    assert {slug for (_, slug) in rows(program, upsert)} == {"sales", "sales_2", "sales_3"}


def test_an_import_of_thousands_fits_into_the_lock_table(program: Session) -> None:
    with program.transaction():
        program.execute(
            "INSERT INTO schemas (catalog_id, name) SELECT %s, 'Table ' || n FROM generate_series(1, 3000) n",
            (WORKSPACE,),
        )
        assert value(program, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") <= 1000
    assert value(program, "SELECT count(DISTINCT slug) FROM schemas") == 3000


NAMES: Final = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80
) | st.sampled_from(["Sales", "sales 2", "Sales_2", "", "datasets", "🎉", LONG, LONG + "y", "É"])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(names=st.lists(NAMES, min_size=1, max_size=30))
@example(names=["a" * 61 + "_2", "a" * 62, "a" * 62, "a" * 63, "a" * 63])
def test_whatever_the_names_slugs_are_well_formed_and_unique(program: Session, names: list[str]) -> None:
    with program.transaction(force_rollback=True):
        slugs = [
            slug
            for (slug,) in rows(
                program,
                "INSERT INTO catalogs (workspace_id, name) SELECT %s, unnest(%s::text[]) RETURNING slug",
                (WORKSPACE, names),
            )
        ]
    assert len(slugs) == len(names)
    assert len(set(slugs)) == len(slugs)
    assert all(SLUG.fullmatch(slug) and len(slug) <= 63 and slug not in RESERVED_CATALOG_SLUGS for slug in slugs)
