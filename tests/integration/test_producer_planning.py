"""The facts that the plan is judged by, from real tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from producer.plan import Excluded, Planned, Reason, classify
from tests.support.controlplane import ControlPlaneFixture, legacy_identifier
from tests.support.operator import Operator
from tests.support.place import Place
from worker.controlplane import migrate, planning, scoping
from worker.controlplane.connection import connect
from worker.controlplane.facts import DatasetFacts, Scope
from worker.moves.ports import Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.every_postgres

EVERYTHING = Scope()


def facts(database: str, scope: Scope = EVERYTHING, warehouse: str = planning.OWN_WAREHOUSE) -> list[DatasetFacts]:
    with connect(database, role="test") as connection:
        return list(planning.stream_facts(connection, scope, warehouse=warehouse))


def reasons(database: str, **options: str) -> dict[str, Reason | str]:
    """By dataset: why it does not move, or where it goes."""
    verdicts = [classify(each) for each in facts(database, **options)]  # type: ignore[arg-type]
    return {
        verdict.dataset_id: verdict.reason if isinstance(verdict, Excluded) else str(verdict.target)
        for verdict in verdicts
    }


@pytest.fixture
def place(control_plane: ControlPlaneFixture) -> Place:
    return Place(control_plane)


def test_a_movable_dataset_goes_to_its_slugs(place: Place, database: str) -> None:
    dataset = place.dataset(None, None)
    (found,) = facts(database)
    assert (found.succeeded_rows, found.legacy_rows, found.legacy_identifiers) == (2, 2, 1)
    verdict = classify(found)
    assert isinstance(verdict, Planned)
    assert str(verdict.source) == legacy_identifier(dataset)
    assert str(verdict.target) == f"sales.europe.ds_{dataset.replace('-', '')}"
    assert verdict.workspace_id == place.workspace


def test_every_reason_of_the_tables(place: Place, database: str) -> None:
    other = Place(place.control_plane, "Elsewhere")
    control_plane = place.control_plane
    expected: dict[str, Reason] = {
        place.dataset(None, schema=None): Reason.NO_SCHEMA,
        place.dataset(): Reason.NOT_SUCCEEDED,
        place.dataset("sales.europe.born"): Reason.NOT_LEGACY,
        place.dataset(None, schema=other.schema): Reason.WORKSPACE_MISMATCH,
        place.dataset("datasets.a", "datasets.b"): Reason.AMBIGUOUS_SOURCE,
        place.dataset("datasets."): Reason.NAME_INVALID,
        place.dataset("datasets.x/y"): Reason.NAME_INVALID,
    }
    failed = place.dataset()
    control_plane.log(failed, status="failed")
    control_plane.log(failed, status="running")
    expected[failed] = Reason.NOT_SUCCEEDED
    placed = place.dataset(None)
    control_plane.execute("UPDATE datasets SET iceberg_namespace = 'sales.europe' WHERE id = %s", (placed,))
    expected[placed] = Reason.ALREADY_PLACED
    assert reasons(database) == expected


def test_a_name_that_only_begins_like_the_legacy_namespace_is_not_legacy(place: Place, database: str) -> None:
    dataset = place.dataset("datasets_2.europe.x")
    assert reasons(database) == {dataset: Reason.NOT_LEGACY}


def test_the_ledger_speaks_before_the_tables(place: Place, database: str) -> None:
    rows = {
        ("queued", "out"): Reason.QUEUED,
        ("flipped", "out"): Reason.FLIPPED,
        ("done", "out"): Reason.DONE,
        ("done", "back"): Reason.REVERTED,
        ("parked", "out"): Reason.PARKED,
    }
    expected = {}
    for (state, direction), reason in rows.items():
        dataset = place.dataset(None)
        place.control_plane.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, state, direction, source_identifier, table_name,"
            " target_namespace, park_code) VALUES (%s, %s, %s, %s, 'datasets.x', 'x', 'sales.europe', %s)",
            (dataset, place.workspace, state, direction, "name_taken" if state == "parked" else None),
        )
        expected[dataset] = reason
    assert reasons(database) == expected


def test_two_datasets_that_name_one_table_are_both_kept_back(place: Place, database: str) -> None:
    other_schema = place.control_plane.schema(place.catalog, "Asia")
    one = place.dataset("datasets.same")
    two = place.dataset("datasets.same", schema=other_schema)
    assert reasons(database) == {one: Reason.SHARED_SOURCE, two: Reason.SHARED_SOURCE}


def test_two_datasets_that_want_one_name_are_both_kept_back(place: Place, database: str) -> None:
    # The same table name can only come from another legacy table's twin in a place of its own.
    placed = place.dataset("sales.europe.twin")
    place.control_plane.execute("UPDATE datasets SET iceberg_namespace = 'sales.europe' WHERE id = %s", (placed,))
    mover = place.dataset("datasets.twin")
    assert reasons(database) == {placed: Reason.ALREADY_PLACED, mover: Reason.TARGET_CONFLICT}


def test_a_late_row_of_a_placed_dataset_claims_its_name_too(place: Place, database: str) -> None:
    placed = place.dataset("datasets.twin")
    place.control_plane.execute("UPDATE datasets SET iceberg_namespace = 'sales.europe' WHERE id = %s", (placed,))
    mover = place.dataset("datasets.twin")
    assert reasons(database) == {placed: Reason.ALREADY_PLACED, mover: Reason.TARGET_CONFLICT}


def test_a_conflict_is_seen_when_only_one_end_is_in_scope(place: Place, database: str) -> None:
    placed = place.dataset("sales.europe.twin")
    place.control_plane.execute("UPDATE datasets SET iceberg_namespace = 'sales.europe' WHERE id = %s", (placed,))
    mover = place.dataset("datasets.twin")
    (found,) = facts(database, Scope(dataset_ids=(mover,)))
    assert found.target_shared


def test_one_dataset_with_an_old_and_a_late_row_does_not_conflict_with_itself(place: Place, database: str) -> None:
    dataset = place.dataset("datasets.twin", "sales.europe.twin")
    place.control_plane.execute("UPDATE datasets SET iceberg_namespace = 'sales.europe' WHERE id = %s", (dataset,))
    (found,) = facts(database)
    assert not found.target_shared


def test_names_are_compared_within_a_warehouse(place: Place, database: str) -> None:
    twin = Place(place.control_plane)  # another workspace with the same slugs
    one, two = place.dataset("datasets.same"), twin.dataset("datasets.same")
    assert set(reasons(database).values()) == {"sales.europe.same"}
    assert set(reasons(database, warehouse="w_{workspace_hex}").values()) == {"sales.europe.same"}
    assert reasons(database, warehouse="lake") == {one: Reason.SHARED_SOURCE, two: Reason.SHARED_SOURCE}


def test_a_tenant_s_own_warehouse_wins_over_the_setting(place: Place, database: str) -> None:
    twin = Place(place.control_plane)
    place.dataset("datasets.same")
    twin.dataset("datasets.same")
    place.control_plane.execute("INSERT INTO reroot.tenants VALUES (%s, 'apart')", (place.workspace,))
    assert set(reasons(database, warehouse="lake").values()) == {"sales.europe.same"}


def test_log_rows_of_a_deleted_dataset_are_named(place: Place, database: str) -> None:
    dataset = place.dataset(None)
    place.control_plane.execute(
        "ALTER TABLE iceberg_sync_log DROP CONSTRAINT IF EXISTS iceberg_sync_log_dataset_id_fkey"
    )
    place.control_plane.execute("DELETE FROM datasets WHERE id = %s", (dataset,))
    assert reasons(database) == {dataset: Reason.NO_DATASET}


def test_the_order_is_catalog_schema_id_and_those_without_a_place_come_last(
    control_plane: ControlPlaneFixture, database: str
) -> None:
    later, earlier = Place(control_plane, "Zoo", "A"), Place(control_plane, "Art", "Z")
    second_schema = control_plane.schema(earlier.catalog, "B")
    homeless = sorted(later.dataset(None, schema=None) for _ in range(2))
    zoo = sorted(later.dataset(None) for _ in range(3))
    art_z = sorted(earlier.dataset(None) for _ in range(3))
    art_b = [earlier.dataset(None, schema=second_schema)]
    assert [each.dataset_id for each in facts(database)] == [*art_b, *art_z, *zoo, *homeless]


def test_the_scope_narrows(control_plane: ControlPlaneFixture, database: str) -> None:
    one, two = Place(control_plane, "Art"), Place(control_plane, "Zoo")
    first, second = one.dataset(None), two.dataset(None)

    def ids(scope: Scope) -> Sequence[str]:
        return [each.dataset_id for each in facts(database, scope)]

    assert ids(Scope(workspace_id=one.workspace)) == [first]
    assert ids(Scope(catalog_slug="zoo")) == [second]
    assert ids(Scope(dataset_ids=(second,))) == [second]
    assert ids(Scope(dataset_ids=())) == []


def test_the_log_is_read_once(place: Place, database: str) -> None:
    place.dataset(None)
    with connect(database, role="test") as connection:
        # What the statement costs on a large log is decided here: one pass, and no look-up per dataset.
        connection.execute("SET enable_nestloop = off")
        statement = planning._STATEMENT.format(scope="true", workspace_hex="{workspace_hex}")
        rows = connection.execute(
            b"EXPLAIN " + statement.encode(), {"prefix": "datasets.", "warehouse": planning.OWN_WAREHOUSE}
        ).fetchall()
    plan = "\n".join(row[0] for row in rows)
    assert plan.count("on iceberg_sync_log") == 1
    assert "Nested Loop" not in plan


def test_ids_as_people_type_them(database: str) -> None:
    with connect(database, role="test") as connection:
        known, unfit = scoping.dataset_ids(
            connection, ("0B1C2D3E-0000-4000-8000-000000000001", "0b1c2d3e000040008000000000000001", "no id")
        )
    assert known == ("0b1c2d3e-0000-4000-8000-000000000001",)
    assert unfit == ("no id",)


def test_a_control_plane_whose_ids_are_text(empty_database: str) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE workspaces (id text PRIMARY KEY);"
            "CREATE TABLE catalogs (id text PRIMARY KEY, workspace_id text NOT NULL, name text NOT NULL);"
            "CREATE TABLE schemas (id text PRIMARY KEY, catalog_id text NOT NULL, name text NOT NULL);"
            "CREATE TABLE datasets (id text PRIMARY KEY, workspace_id text NOT NULL, schema_id text, name text);"
            "CREATE TABLE iceberg_sync_log (id bigserial PRIMARY KEY, dataset_id text NOT NULL, mode text, status text,"
            " iceberg_table text, snapshot_id bigint, row_count bigint, error text, started_at timestamptz,"
            " finished_at timestamptz)"
        )
        migrate.upgrade(empty_database)
        connection.execute(
            "INSERT INTO workspaces VALUES ('W1'); INSERT INTO catalogs VALUES ('c1', 'W1', 'Sales');"
            "INSERT INTO schemas VALUES ('s1', 'c1', 'Europe');"
            "INSERT INTO datasets VALUES ('D 1', 'W1', 's1', 'Orders');"
            "INSERT INTO iceberg_sync_log (dataset_id, status, iceberg_table) VALUES ('D 1', 'succeeded', 'datasets.o')"
        )
    assert reasons(empty_database) == {"D 1": "sales.europe.o"}
    with connect(empty_database, role="test") as ours:
        assert scoping.dataset_ids(ours, ("D 1", "D 2", "D 1")) == (("D 1", "D 2"), ())
    assert [each.dataset_id for each in facts(empty_database, Scope(dataset_ids=("D 1", "x")))] == ["D 1"]
    assert [each.dataset_id for each in facts(empty_database, Scope(workspace_id="W1"))] == ["D 1"]


def commits(control_plane: ControlPlaneFixture, dataset: str, number: int, *, age: str) -> None:
    control_plane.execute(
        "INSERT INTO iceberg_sync_log (dataset_id, mode, status, iceberg_table, finished_at)"
        " SELECT %s, 'cdc.append', 'succeeded', %s, now() - %s::interval FROM generate_series(1, %s)",
        (dataset, legacy_identifier(dataset), age, number),
    )


def test_the_commits_of_the_last_day_are_counted(place: Place, database: str) -> None:
    dataset = place.dataset()
    commits(place.control_plane, dataset, 5, age="23 hours")
    commits(place.control_plane, dataset, 7, age="25 hours")
    place.control_plane.log(dataset, status="failed")
    (found,) = facts(database)
    assert (found.commits_last_day, found.legacy_rows) == (5, 12)


def test_names_that_differ_in_case_alone_are_twins_under_either_name(place: Place, database: str) -> None:
    other_schema = place.control_plane.schema(place.catalog, "Asia")
    upper, lower = place.dataset("datasets.Twin"), place.dataset("datasets.twin", schema=other_schema)
    placed, mover = place.dataset("sales.europe.House"), place.dataset("datasets.HOUSE")
    place.control_plane.execute("UPDATE datasets SET iceberg_namespace = 'sales.europe' WHERE id = %s", (placed,))
    alone = place.dataset("datasets.alone", "datasets.alone")
    found = {each.dataset_id: each.case_twin for each in facts(database)}
    assert found == {upper: True, lower: True, placed: True, mover: True, alone: False}
    assert Reason.SHARED_SOURCE not in reasons(database).values()


def test_twins_of_two_warehouses_are_none(place: Place, database: str) -> None:
    twin = Place(place.control_plane)
    place.dataset("datasets.same")
    twin.dataset("datasets.SAME")
    assert [each.case_twin for each in facts(database)] == [False, False]
    assert [each.case_twin for each in facts(database, warehouse="lake")] == [True, True]


def test_the_strategy_of_the_warehouse_comes_along(place: Place, database: str) -> None:
    place.dataset(None)
    place.control_plane.execute(
        "INSERT INTO reroot.warehouses (warehouse, strategy, set_by_operator) VALUES ('lake', 'rename', true)"
    )
    (found,) = facts(database, warehouse="lake")
    assert (found.strategy, found.strategy_set) == (Strategy.RENAME, True)
    (found,) = facts(database, warehouse="sea")
    assert (found.strategy, found.strategy_set) == (None, False)


def test_plan_and_dry_run_warn_under_the_settings_as_they_are(place: Place, database: str) -> None:
    busy, odd = place.dataset(), place.dataset("datasets.50%")
    commits(place.control_plane, busy, 60, age="1 hour")
    patient = Operator(database, REROOT_GRACE_SECONDS="86400", REROOT_WAREHOUSE="lake")
    document = patient.types("plan", "--json").json()
    assert document["warnings"] == {"metadata_cleanup": 1, "name_in_path": 1}
    assert {each["dataset_id"]: each["warnings"] for each in document["datasets"]} == {
        busy: ["metadata_cleanup"],
        odd: ["name_in_path"],
    }
    for arguments in (("plan",), ("move", "--all", "--dry-run")):
        out = patient.types(*arguments).out
        assert "2 warnings; these datasets can move all the same:" in out
        assert f"  metadata_cleanup  {busy}" in out.splitlines()
    assert Operator(database).types("plan", "--json").json()["warnings"] == {"name_in_path": 1}
    assert patient.types("warehouse", "lake", "--strategy", "rename").code == 0
    assert patient.types("plan", "--json").json()["warnings"] == {"name_in_path": 1}
