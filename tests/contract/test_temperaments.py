"""What each temperament does to a client, request by request, and in races that are made to happen.

Recordings cannot hold the races: who wins differs from run to run. Here every client is stopped between what it looked
at and what it changes, and they go on together.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import urllib3
from pydantic import SecretStr

from tests.support.rest_double import TEMPERAMENTS, Kind, RestDouble
from tests.support.rest_double.access import Grants
from tests.support.rest_double.privileges import Privileges
from tests.support.tables import append, files_under, make_namespaces, make_table, pyiceberg_catalog_for
from worker.identifiers import TableIdentifier
from worker.lakehouse.connection import CatalogAuth, CatalogConnection, CatalogType
from worker.lakehouse.lakehouse import open_lakehouse
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from worker.lakehouse.port import Catalog

OLD = TableIdentifier(("datasets",), "ds_1")
NEW = TableIdentifier(("main", "ventas"), "ds_1")
CLIENTS = 8


class Town:
    """A double with one warehouse, a writer, and clients of the adapter."""

    def __init__(self, temperament: str, folder: Path, *, soft_delete: bool = False) -> None:
        self.folder = folder
        self.double = RestDouble(TEMPERAMENTS[temperament])
        self.warehouse = self.double.make_warehouse("w", f"file://{folder}", soft_delete=soft_delete)
        self.double.start()
        self._closing: list[Callable[[], None]] = []
        self.writer = pyiceberg_catalog_for(self._connection(), "w")
        self._closing.append(self.writer.close)
        self.catalog = self.client()
        make_namespaces(self.writer, OLD.namespace)
        make_namespaces(self.writer, NEW.namespace)

    def _connection(self, token: str | None = None, user: str | None = None) -> CatalogConnection:
        if user is not None:
            uri, password = SecretStr(self.double.uri), SecretStr("secret")
            return CatalogConnection(CatalogType.REST, uri, auth=CatalogAuth.BASIC, user=user, password=password)
        auth = CatalogAuth.NONE if token is None else CatalogAuth.TOKEN
        secret = None if token is None else SecretStr(token)
        return CatalogConnection(CatalogType.REST, SecretStr(self.double.uri), auth=auth, token=secret)

    def client(self, token: str | None = None, user: str | None = None) -> Catalog:
        """Another client."""
        lakehouse = open_lakehouse(self._connection(token, user))
        self._closing.append(lakehouse.close)
        return lakehouse.catalog("w")

    def make(self, identifier: TableIdentifier = OLD) -> None:
        """A table of ten rows."""
        make_table(self.writer, identifier)

    def ask(self, method: str, where: str) -> int:
        """The status of a request that no adapter would send."""
        prefix = self.warehouse.id if self.double.temperament.prefix == "id" else self.warehouse.name
        address = f"{self.double.uri}/v1/{prefix}{where}"
        return urllib3.request(method, address, retries=False, timeout=10.0).status

    def close(self) -> None:
        """Close everything."""
        for close in self._closing:
            close()
        self.double.stop()
        assert not self.double.failures

    def together(self, *calls: Callable[[Catalog], None]) -> list[CatalogError | None]:
        """The ends of calls that all look before any of them changes a thing."""
        barrier = threading.Barrier(len(calls), timeout=30)
        self.double.between = lambda _: _wait(barrier)

        def one(call: Callable[[Catalog], None]) -> CatalogError | None:
            client = self.client()
            try:
                call(client)
            except CatalogError as error:
                return error
            return None

        try:
            with ThreadPoolExecutor(len(calls)) as pool:
                return list(pool.map(one, calls))
        finally:
            self.double.between = lambda _: None


def _wait(barrier: threading.Barrier) -> None:
    barrier.wait()


@contextmanager
def town(temperament: str, folder: Path, *, soft_delete: bool = False) -> Iterator[Town]:
    """A town that is closed in the end, and in which the double itself never failed."""
    made = Town(temperament, folder / "warehouse", soft_delete=soft_delete)
    try:
        yield made
    finally:
        made.close()


def ended(call: Callable[[], object]) -> tuple[ErrorCode, ErrorKind]:
    """How a call is refused."""
    with pytest.raises(CatalogError) as caught:
        call()
    return caught.value.code, caught.value.kind


LAKEKEEPERS = pytest.mark.parametrize("lakekeeper", ["lakekeeper-0.13.3", "lakekeeper-main"])


class TestLakekeeper:
    @LAKEKEEPERS
    def test_one_rename_that_is_sent_eight_times_at_once_succeeds_eight_times(
        self, lakekeeper: str, tmp_path: Path
    ) -> None:
        with town(lakekeeper, tmp_path) as made:
            made.make()
            ends = made.together(*[lambda client: client.rename(OLD, NEW)] * CLIENTS)
            assert ends == [None] * CLIENTS
            assert made.catalog.load(NEW).row_count == 10
            assert ended(lambda: made.catalog.load(OLD)) == (ErrorCode.TABLE_MISSING, ErrorKind.PERMANENT)

    @LAKEKEEPERS
    def test_one_table_renamed_to_eight_names_takes_one(self, lakekeeper: str, tmp_path: Path) -> None:
        with town(lakekeeper, tmp_path) as made:
            made.make()
            targets = [TableIdentifier(NEW.namespace, f"ds_{number}") for number in range(10, 10 + CLIENTS)]
            ends = made.together(*[lambda client, target=target: client.rename(OLD, target) for target in targets])
            assert ends.count(None) == 1
            assert {end.code for end in ends if end is not None} == {ErrorCode.TABLE_MISSING}
            assert len(list(made.catalog.list_tables(NEW.namespace))) == 1

    @pytest.mark.parametrize(
        ("lakekeeper", "lost"),
        [
            ("lakekeeper-0.13.3", {(404, ErrorCode.TABLE_MISSING), (503, ErrorCode.UNCLEAR)}),
            ("lakekeeper-main", {(409, ErrorCode.ALREADY_EXISTS)}),
        ],
    )
    def test_eight_tables_renamed_to_one_name_and_one_gets_it(
        self, lakekeeper: str, lost: set[tuple[int, ErrorCode]], tmp_path: Path
    ) -> None:
        with town(lakekeeper, tmp_path) as made:
            sources = [TableIdentifier(OLD.namespace, f"ds_{number}") for number in range(CLIENTS)]
            for source in sources:
                made.make(source)
            ends = made.together(*[lambda client, source=source: client.rename(source, NEW) for source in sources])
            assert ends.count(None) == 1
            assert {end.code for end in ends if end is not None} == {code for _, code in lost}
            statuses = Counter(seen.status for seen in made.double.seen if seen.kind is Kind.RENAME)
            assert set(statuses) == {204} | {status for status, _ in lost}
            assert len(list(made.catalog.list_tables(OLD.namespace))) == CLIENTS - 1

    @LAKEKEEPERS
    def test_a_rename_and_a_drop_of_the_old_name_both_succeed_and_the_table_is_gone(
        self, lakekeeper: str, tmp_path: Path
    ) -> None:
        with town(lakekeeper, tmp_path) as made:
            made.make()
            looked, renamed = threading.Event(), threading.Event()

            def between(kind: Kind) -> None:
                if kind is Kind.DROP:
                    looked.set()
                    assert renamed.wait(30)

            made.double.between = between
            with ThreadPoolExecutor(1) as pool:
                drop = pool.submit(made.client().drop, OLD)
                assert looked.wait(30)
                made.catalog.rename(OLD, NEW)
                renamed.set()
                drop.result(30)
            for name in (OLD, NEW):
                assert ended(partial(made.catalog.load, name))[0] is ErrorCode.TABLE_MISSING

    @LAKEKEEPERS
    def test_a_drop_purges_when_nothing_is_said_and_load_and_commit_do_not_notice(
        self, lakekeeper: str, tmp_path: Path
    ) -> None:
        with town(lakekeeper, tmp_path) as made:
            made.make()
            table = made.catalog.load(OLD)
            assert made.ask("DELETE", "/namespaces/datasets/tables/ds_1") == 204
            made.catalog.register(NEW, table.metadata_location)
            made.double.run_tasks()
            assert files_under(made.folder) == set()
            assert made.catalog.load(NEW).uuid == table.uuid
            made.writer.load_table((*NEW.namespace, NEW.name)).transaction().set_properties(a="b").commit_transaction()
            assert made.warehouse.purged == [table.location]

    @LAKEKEEPERS
    def test_our_drop_leaves_every_file(self, lakekeeper: str, tmp_path: Path) -> None:
        with town(lakekeeper, tmp_path) as made:
            made.make()
            files = files_under(made.folder)
            made.catalog.drop(OLD)
            made.double.run_tasks()
            assert files_under(made.folder) == files
            assert made.warehouse.purged == []

    @LAKEKEEPERS
    def test_names_are_found_in_every_case_and_a_plus_is_never_found_again(
        self, lakekeeper: str, tmp_path: Path
    ) -> None:
        with town(lakekeeper, tmp_path) as made:
            made.make()
            assert made.catalog.load(TableIdentifier(("DATASETS",), "Ds_1")).row_count == 10
            plus = TableIdentifier(NEW.namespace, "a+b")
            made.catalog.rename(OLD, plus)
            assert ended(lambda: made.catalog.load(plus))[0] is ErrorCode.TABLE_MISSING
            made.catalog.rename(plus, NEW)
            made.catalog.load(NEW)

    @pytest.mark.parametrize(("lakekeeper", "blocks"), [("lakekeeper-0.13.3", True), ("lakekeeper-main", False)])
    def test_a_softly_deleted_table_keeps_its_uuid_and_sometimes_its_name(
        self, lakekeeper: str, blocks: bool, tmp_path: Path
    ) -> None:
        with town(lakekeeper, tmp_path, soft_delete=True) as made:
            made.make(NEW)
            gone = made.catalog.load(NEW)
            made.catalog.drop(NEW)
            taken = (ErrorCode.ALREADY_EXISTS, ErrorKind.PERMANENT)
            assert ended(lambda: made.catalog.register(OLD, gone.metadata_location)) == taken
            made.make(OLD)
            if blocks:
                assert ended(lambda: made.catalog.rename(OLD, NEW))[0] is ErrorCode.TABLE_MISSING
                made.double.expire(made.warehouse)
            made.catalog.rename(OLD, NEW)
            assert made.catalog.load(NEW).uuid != gone.uuid

    def test_what_is_forbidden_is_hidden(self, tmp_path: Path) -> None:
        with town("lakekeeper-0.13.3", tmp_path) as made:
            made.make()
            made.double.grants = grants = Grants()
            bob = made.client("bob")
            assert ended(lambda: bob.load(OLD)) == (ErrorCode.UNAVAILABLE, ErrorKind.TRANSIENT)
            grants.grant("bob", "describe", ("elsewhere",))
            assert ended(lambda: bob.load(OLD)) == (ErrorCode.TABLE_MISSING, ErrorKind.PERMANENT)
            assert not bob.namespace_exists(OLD.namespace)
            grants.grant("bob", "modify", OLD.namespace)
            assert bob.load(OLD).row_count == 10
            assert ended(lambda: bob.rename(OLD, NEW))[0] is ErrorCode.NAMESPACE_MISSING
            grants.grant("bob", "describe", NEW.namespace)
            assert ended(lambda: bob.rename(OLD, NEW)) == (ErrorCode.FORBIDDEN, ErrorKind.PERMANENT)
            grants.grant("bob", "create", NEW.namespace)
            bob.rename(OLD, NEW)


class TestGravitino:
    def test_1_2_with_authorization_registers_below_one_level_and_answers_500(self, tmp_path: Path) -> None:
        with town("gravitino-1.2-authorization", tmp_path) as made:
            made.make()
            location = made.catalog.load(OLD).metadata_location
            unclear = (ErrorCode.UNCLEAR, ErrorKind.UNKNOWN)
            assert ended(lambda: made.catalog.register(NEW, location)) == unclear
            assert made.catalog.load(NEW).metadata_location == location
            flat = TableIdentifier(OLD.namespace, "ds_2")
            made.catalog.register(flat, location)
            taken = (ErrorCode.ALREADY_EXISTS, ErrorKind.PERMANENT)
            assert ended(lambda: made.catalog.register(NEW, location)) == taken

    def test_1_2_with_authorization_lists_the_first_level_and_drops_a_nested_namespace_with_a_500(
        self, tmp_path: Path
    ) -> None:
        with town("gravitino-1.2-authorization", tmp_path) as made:
            made.make(OLD)
            made.catalog.rename(OLD, NEW)
            made.catalog.load(NEW)
            assert list(made.catalog.list_tables(NEW.namespace)) == [TableIdentifier(("main",), "ds_1")]
            made.catalog.create_namespace(("main", "empty"))
            namespaces = f"{made.double.uri}/v1/w/namespaces"
            assert urllib3.request("DELETE", f"{namespaces}/main%1Fempty", retries=False).status == 500
            assert not made.catalog.namespace_exists(("main", "empty"))

    def test_1_3_wants_the_namespace_and_refuses_to_overwrite(self, tmp_path: Path) -> None:
        with town("gravitino-1.3", tmp_path) as made:
            made.make()
            location = made.catalog.load(OLD).metadata_location
            nowhere = TableIdentifier(("nowhere", "deep"), "ds_1")
            missing = (ErrorCode.NAMESPACE_MISSING, ErrorKind.PERMANENT)
            assert ended(lambda: made.catalog.register(nowhere, location)) == missing
            body = {"name": "ds_2", "metadata-location": location, "overwrite": True}
            address = f"{made.double.uri}/v1/w/namespaces/datasets/register"
            assert urllib3.request("POST", address, json=body, retries=False).status == 406

    def test_1_3_that_cannot_start_a_catalog_says_that_authorization_failed(self, tmp_path: Path) -> None:
        with town("gravitino-1.3", tmp_path) as made:
            made.make()
            made.catalog.load(OLD)
            made.warehouse.starts = False
            assert ended(lambda: made.catalog.load(OLD)) == (ErrorCode.UNCLEAR, ErrorKind.TRANSIENT)
            assert ended(lambda: made.catalog.rename(OLD, NEW)) == (ErrorCode.UNCLEAR, ErrorKind.UNKNOWN)


AUTHORIZED = pytest.mark.parametrize("gravitino", ["gravitino-1.2-authorization", "gravitino-1.3-authorization"])
FORBIDDEN = (ErrorCode.FORBIDDEN, ErrorKind.PERMANENT)
UNCLEAR = (ErrorCode.UNCLEAR, ErrorKind.UNKNOWN)


class TestGravitinoWithAuthorization:
    @AUTHORIZED
    def test_a_metadata_tables_name_is_taken_and_hidden_below_one_level(self, gravitino: str, tmp_path: Path) -> None:
        with town(gravitino, tmp_path) as made:
            old, new = (TableIdentifier(name.namespace, "files") for name in (OLD, NEW))
            made.make(old)
            made.catalog.load(old)
            assert not made.catalog.table_exists(new)
            made.catalog.rename(old, new)
            assert ended(lambda: made.catalog.load(new)) == (ErrorCode.TABLE_MISSING, ErrorKind.PERMANENT)
            assert made.catalog.table_exists(new)
            made.catalog.rename(new, old)
            made.catalog.load(old)

    @AUTHORIZED
    def test_a_name_with_a_dot_is_taken_and_cannot_be_read(self, gravitino: str, tmp_path: Path) -> None:
        with town(gravitino, tmp_path) as made:
            made.make()
            dotted = TableIdentifier(OLD.namespace, "a.b")
            made.catalog.rename(OLD, dotted)
            assert ended(lambda: made.catalog.load(dotted)) == (ErrorCode.UNCLEAR, ErrorKind.TRANSIENT)
            for change in (lambda: made.catalog.rename(dotted, OLD), lambda: made.catalog.drop(dotted)):
                assert ended(change) == UNCLEAR
            listed = list(made.catalog.list_tables(OLD.namespace))
            assert listed == ([dotted] if "1.2" in gravitino else [])

    @AUTHORIZED
    def test_a_long_name_is_renamed_and_then_a_500(self, gravitino: str, tmp_path: Path) -> None:
        with town(gravitino, tmp_path) as made:
            made.make()
            longest, longer = (TableIdentifier(NEW.namespace, "x" * length) for length in (128, 129))
            made.catalog.rename(OLD, longest)
            assert ended(lambda: made.catalog.rename(longest, longer)) == UNCLEAR
            assert made.catalog.load(longer).row_count == 10

    @AUTHORIZED
    def test_a_rename_and_a_drop_take_ownership_of_the_table(self, gravitino: str, tmp_path: Path) -> None:
        with town(gravitino, tmp_path) as made:
            made.make()
            made.double.privileges = Privileges({"owner"}, {"bob": {"*"}})
            bob, owner = made.client(user="bob"), made.client(user="owner")
            location = bob.load(OLD).metadata_location
            second = TableIdentifier(OLD.namespace, "ds_2")
            bob.register(second, location)
            for change in (lambda: bob.rename(OLD, NEW), lambda: bob.rename(OLD, second), lambda: bob.drop(OLD)):
                assert ended(change) == FORBIDDEN
            bob.drop(second)
            owner.rename(OLD, NEW)

    def test_1_2_authorizes_a_rename_by_the_first_level_and_a_load_by_the_last(self, tmp_path: Path) -> None:
        with town("gravitino-1.2-authorization", tmp_path) as made:
            made.double.privileges = Privileges({"anonymous"}, {"bob": {"datasets", "main"}})
            bob = made.client(user="bob")
            made.make(TableIdentifier(OLD.namespace, "other"))
            bob.register(OLD, made.catalog.load(TableIdentifier(OLD.namespace, "other")).metadata_location)
            assert ended(lambda: bob.load(NEW)) == FORBIDDEN
            bob.rename(OLD, NEW)
            made.warehouse.live(NEW).owner = ""  # type: ignore[union-attr]
            assert ended(lambda: bob.load(NEW)) == FORBIDDEN
            assert list(bob.list_tables(NEW.namespace)) == [TableIdentifier(("main",), "ds_1")]

    def test_1_3_answers_a_load_from_its_cache_and_nothing_else(self, tmp_path: Path) -> None:
        with town("gravitino-1.3", tmp_path) as made:
            made.make()
            table = made.catalog.load(OLD)
            made.double.files.remove(table.metadata_location)
            assert made.catalog.load(OLD).uuid == table.uuid
            gone = (ErrorCode.FILE_MISSING, ErrorKind.PERMANENT)
            assert ended(lambda: made.catalog.register(NEW, table.metadata_location)) == gone
            assert ended(lambda: made.catalog.rename(OLD, NEW)) == gone
            assert made.ask("HEAD", "/namespaces/datasets/tables/ds_1") == 500


class TestPolaris:
    def test_refuses_a_location_of_another_namespace_and_renames_without_looking_at_it(self, tmp_path: Path) -> None:
        with town("polaris", tmp_path) as made:
            made.make()
            location = made.catalog.load(OLD).metadata_location
            assert ended(lambda: made.catalog.register(NEW, location)) == (ErrorCode.FORBIDDEN, ErrorKind.PERMANENT)
            made.catalog.rename(OLD, NEW)
            assert made.catalog.load(NEW).metadata_location == location
            append(made.writer, NEW)
