"""Credentials that a catalog hands out for one table, on a store that checks who asks."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import SecretStr

from tests.support.controlplane import ControlPlaneFixture, legacy_identifier
from tests.support.object_store import ObjectStore
from tests.support.tables import make_table, pyiceberg_catalog_for
from tests.support.vending_catalog import VendingCatalog
from worker.controlplane.ledger import PostgresControlPlane
from worker.identifiers import LEGACY_NAMESPACE, TableIdentifier
from worker.lakehouse.connection import CatalogConnection, CatalogType
from worker.lakehouse.lakehouse import open_lakehouse
from worker.lakehouse.port import Catalog, SoakError
from worker.lakehouse.reading import ReadError
from worker.lakehouse.storage import Storage
from worker.moves.attempt import Mover
from worker.moves.policy import Policy
from worker.outcome import Done, Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.lakehouse.lakehouse import OpenLakehouse

WAREHOUSE = "w_1"
ONE, OTHER = (TableIdentifier((LEGACY_NAMESPACE,), name) for name in ("ds_one", "ds_one_more"))
"""The second's folder begins as the first's does."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as running:
        yield running


class Lake:
    """A catalog that vends, with two tables in it."""

    def __init__(self, store: ObjectStore, root: str, leaving: ExitStack) -> None:
        self.store = store
        self._leaving = leaving
        self.server = leaving.enter_context(VendingCatalog.over(store))
        self.server.make_warehouse(WAREHOUSE, f"{store.root}/{root}")
        writer = pyiceberg_catalog_for(self.connection(**store.options()), WAREHOUSE)
        leaving.callback(writer.close)
        for name in (ONE, OTHER):
            make_table(writer, name, rows=10, snapshots=2, location=f"{store.root}/{root}/{name.name}")
        self.server.handed_out.clear()

    def connection(self, **properties: str) -> CatalogConnection:
        """How it is reached; without properties nobody but the catalog says how storage is."""
        options = {name: SecretStr(value) for name, value in properties.items()}
        return CatalogConnection(CatalogType.REST, SecretStr(self.server.uri), properties=options)

    def lakehouse(self, **properties: str) -> OpenLakehouse:
        opened = open_lakehouse(self.connection(**properties))
        self._leaving.callback(opened.close)
        return opened

    def catalog(self, **properties: str) -> Catalog:
        return self.lakehouse(**properties).catalog(WAREHOUSE)

    def secrets(self) -> set[str]:
        """Everything of what was handed out that nobody else may see."""
        return {text for key in self.server.handed_out for text in (key.id, key.secret, key.token) if text}


@pytest.fixture
def lake(store: ObjectStore, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    # Who this machine is in somebody's cloud must not help.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with ExitStack() as leaving:
        yield Lake(store, tmp_path.name, leaving)


@pytest.mark.parametrize("in_config", [False, True])
def test_a_table_is_read_with_what_its_load_brought_and_without_it_not(lake: Lake, in_config: bool) -> None:
    lake.server.in_config = in_config
    catalog = lake.catalog()
    catalog.soak(catalog.load(ONE))
    assert len(lake.server.handed_out) == 1
    lake.server.silent = True
    with pytest.raises(SoakError, match="cannot be read"):
        catalog.soak(catalog.load(ONE))


def test_it_opens_its_own_table_and_no_other(lake: Lake) -> None:
    catalog = lake.catalog()
    one, other = catalog.load(ONE), catalog.load(OTHER)
    assert other.location.startswith(one.location)
    for mine, foreign in ((one, other), (other, one)):
        storage = Storage(mine.storage)
        assert storage.read(mine.metadata_location)
        with pytest.raises(ReadError, match="ACCESS_DENIED"):
            storage.read(foreign.metadata_location)


def test_a_credential_for_another_folder_fails_the_soak_and_stands_in_no_text(lake: Lake) -> None:
    catalog = lake.catalog()
    lake.server.folder = f"{lake.store.root}/elsewhere"
    table = catalog.load(ONE)
    # The catalog says that it opens another folder: what fits the table's own place is looked for, and there is none.
    assert table.storage == {}
    lake.server.in_config = True
    table = catalog.load(ONE)
    with pytest.raises(SoakError) as caught:
        catalog.soak(table)
    shown = f"{caught.value} {caught.value!r} {table!r} {catalog!r}"
    assert table.metadata_location in shown
    assert not [secret for secret in lake.secrets() if secret in shown]


def test_where_nothing_is_handed_out_the_warehouse_has_options_of_its_own(lake: Lake) -> None:
    lake.server.silent = True
    catalog = lake.catalog(**lake.store.options())
    catalog.soak(catalog.load(ONE))
    assert lake.server.handed_out == []


def test_what_is_handed_out_goes_before_the_warehouses_own(lake: Lake) -> None:
    wrong = {**lake.store.options(), "s3.access-key-id": "AKIANOBODY", "s3.secret-access-key": "nothing"}
    catalog = lake.catalog(**wrong)
    catalog.soak(catalog.load(ONE))
    lake.server.silent = True
    with pytest.raises(SoakError):
        catalog.soak(catalog.load(ONE))


def test_whether_a_file_is_missing_is_asked_with_it_too(lake: Lake) -> None:
    catalog = lake.catalog()
    table = catalog.load(ONE)
    earlier = min(table.metadata_log)
    assert not catalog.file_missing(earlier, table)
    lake.store.client().delete_object(Bucket=lake.store.bucket, Key=earlier.removeprefix(lake.store.root + "/"))
    assert catalog.file_missing(earlier, table)


class Move:
    """A dataset whose table is the lake's first, queued in the ledger."""

    def __init__(self, lake: Lake, database: str, plane: ControlPlaneFixture, leaving: ExitStack) -> None:
        self.plane = plane
        workspace = plane.workspace()
        schema = plane.schema(plane.catalog(workspace, "Lake"), "Europe")
        self.id = plane.dataset(workspace, schema)
        name = legacy_identifier(self.id).removeprefix(LEGACY_NAMESPACE + ".")
        old = TableIdentifier.within(LEGACY_NAMESPACE, name)
        lake.catalog().rename(ONE, old)
        plane.log(self.id, iceberg_table=str(old), snapshot_id=lake.catalog().load(old).snapshot_id, row_count=20)
        plane.execute(
            "INSERT INTO reroot.moves (dataset_id, workspace_id, source_identifier, table_name, target_namespace)"
            " VALUES (%s, %s, %s, %s, %s)",
            (self.id, workspace, str(old), name, plane.place(schema)),
        )
        ledger = PostgresControlPlane(database, worker="w", warehouse_for=lambda _: WAREHOUSE, attempt_seconds=60)
        leaving.callback(ledger.disconnect)
        self._mover = Mover(ledger, lake.lakehouse(), Policy(jitter=lambda: 0.5))

    def attempt(self) -> Any:
        self.plane.execute("UPDATE reroot.moves SET not_before = now()")
        return self._mover.attempt(self.id)

    def written(self) -> str:
        """Everything that Reroot has written down."""
        tables = ("moves", "move_events", "pointers", "warehouses", "workers")
        return repr([self.plane.execute(f"SELECT * FROM reroot.{table}") for table in tables])


def test_a_whole_move_keeps_no_credential_and_tells_nobody(
    lake: Lake, database: str, control_plane: ControlPlaneFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    # The catalog's own client, which holds the administrator's key, lives in this process too.
    for name in ("botocore", "boto3", "urllib3"):
        caplog.set_level(logging.INFO, logger=name)
    with ExitStack() as leaving:
        move = Move(lake, database, control_plane, leaving)
        lake.server.in_config, lake.server.folder = True, f"{lake.store.root}/elsewhere"
        ends = [move.attempt()]
        lake.server.folder = None
        ends += [move.attempt(), move.attempt()]
        assert isinstance(ends[0], Retry), ends
        assert ends[1:] == [Done("flipped"), Done("done")]
        told = f"{ends} {move.written()} {caplog.text}"
    assert len(lake.server.handed_out) > 3
    assert not [secret for secret in lake.secrets() if secret in told]
