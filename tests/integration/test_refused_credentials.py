"""What becomes of jobs whose credentials a catalog refuses, and of those that it knows and does not allow something."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.support.controlplane import ControlPlaneFixture, legacy_identifier
from tests.support.operator import Operator
from tests.support.rest_double import TEMPERAMENTS, RestDouble
from tests.support.rest_double.access import WAREHOUSE as WHOLE
from tests.support.rest_double.access import Grants
from tests.support.tables import make_table
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.outcome import Done, Park, ParkCode, Wait
from worker.settings import load_settings
from worker.wiring import Runtime, build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAREHOUSE = "w_1"
GOOD = "good-token"


class Tenant:
    """A dataset with a table in a warehouse of a catalog that asks who comes, and a worker with a mounted token."""

    def __init__(self, database: str, plane: ControlPlaneFixture, folder: Path, leaving: ExitStack) -> None:
        self.database = database
        self.plane = plane
        self.token = folder / "token"
        self.double = leaving.enter_context(RestDouble(TEMPERAMENTS["lakekeeper-main"]))
        self.double.make_warehouse(WAREHOUSE, f"file://{folder}/warehouse")
        workspace = plane.workspace()
        schema = plane.schema(plane.catalog(workspace, "Lake"), "Europe")
        self.id = plane.dataset(workspace, schema)
        old = TableIdentifier.within(LEGACY_NAMESPACE, legacy_identifier(self.id).removeprefix(LEGACY_NAMESPACE + "."))
        writer = RestCatalog("writer", uri=self.double.uri, warehouse=WAREHOUSE, auth={"type": "noop"})  # type: ignore[arg-type]
        snapshot = make_table(writer, old).current_snapshot()
        writer.close()
        assert snapshot is not None
        plane.log(self.id, iceberg_table=str(old), snapshot_id=snapshot.snapshot_id, row_count=10)
        plane.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
            " VALUES (%s, %s, %s, %s, %s)",
            (self.id, workspace, str(old), old.name, plane.place(schema)),
        )
        self.double.tokens = frozenset({GOOD})
        self._leaving = leaving

    def settings(self, **more: str) -> dict[str, str]:
        return {
            "REROOT_DATABASE_URL": self.database,
            "REROOT_CATALOG_URI": self.double.uri,
            "REROOT_CATALOG_AUTH": "token",
            "REROOT_CATALOG_TOKEN_FILE": str(self.token),
            "REROOT_WAREHOUSE": WAREHOUSE,
            **more,
        }

    def worker(self, monkeypatch: pytest.MonkeyPatch, **more: str) -> Runtime:
        """What a worker's process has, with its environment."""
        for name, value in self.settings(**more).items():
            monkeypatch.setenv(name, value)
        runtime = build(load_settings(), "worker-1")
        self._leaving.callback(runtime.close)
        return runtime

    def attempt(self, worker: Runtime) -> Any:
        """One attempt, now: as if the time had come that the job waits for."""
        self.plane.execute("UPDATE reroot.moves SET not_before = now()")
        self.plane.execute("UPDATE reroot.warehouses SET down_until = now() WHERE down_until IS NOT NULL")
        return worker.move(self.id)

    def status(self) -> str:
        return Operator(self.database, **self.settings()).types("status").out


@pytest.fixture
def tenant(database: str, control_plane: ControlPlaneFixture, tmp_path: Path) -> Iterator[Tenant]:
    with ExitStack() as leaving:
        yield Tenant(database, control_plane, tmp_path, leaving)


def test_a_token_that_is_refused_makes_jobs_wait_loudly_until_its_file_is_replaced(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant.token.write_text("an-old-one")
    worker = tenant.worker(monkeypatch)
    for _ in range(12):  # more often than a job may fail
        assert isinstance(tenant.attempt(worker), Wait)
    [[attempts]] = tenant.plane.execute("SELECT attempts FROM reroot.moves")
    assert attempts == 0
    shown = tenant.status()
    assert WAREHOUSE in shown
    assert "the catalog does not accept our credentials" in shown
    assert "an-old-one" not in shown

    tenant.token.write_text(GOOD)
    assert isinstance(tenant.attempt(worker), Done)
    assert "credentials" not in tenant.status()


def test_a_warehouses_own_token_that_is_not_mounted_is_named_in_the_status(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tenant.token.write_text("for-the-others")
    own = tmp_path / "own"
    overrides = json.dumps({WAREHOUSE: {"token_file": str(own)}})
    worker = tenant.worker(monkeypatch, REROOT_CATALOG_OVERRIDES=overrides)
    assert isinstance(tenant.attempt(worker), Wait)
    assert f"cannot read {own}" in tenant.status().replace("\n", "")
    own.write_text(GOOD)
    assert isinstance(tenant.attempt(worker), Done)


def test_what_is_not_allowed_parks_and_says_what_is_missing(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant.token.write_text(GOOD)
    # It may see and read everything; renaming is not among that.
    grants = Grants()
    grants.grant(GOOD, "select", WHOLE)
    grants.grant(GOOD, "create", WHOLE)
    tenant.double.grants = grants
    worker = tenant.worker(monkeypatch, REROOT_STRATEGY="rename")
    ended = tenant.attempt(worker)
    assert isinstance(ended, Park)
    assert ended.code is ParkCode.FORBIDDEN
    assert "TableActionForbidden" in ended.why
    assert "rename the table datasets." in ended.why
    assert "grant" in ended.remedy

    grants.grant(GOOD, "modify", WHOLE)
    retried = Operator(tenant.database, **tenant.settings()).types("retry", tenant.id)
    assert isinstance(tenant.attempt(worker), Done), retried
