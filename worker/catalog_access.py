"""How each warehouse's catalog is reached, read again when a file that a secret came from has changed.

Responsible for: turning settings into the connection of one warehouse, and that a secret which an operator has replaced
is used by the next job, without a restart.
Must not know: catalogs, jobs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from worker.lakehouse.connection import CatalogAuth, CatalogConnection, CatalogType
from worker.settings import SettingsError, load_settings
from worker.telemetry import hide, log

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import SecretStr

    from worker.settings import Settings


def catalog_connection(settings: Settings) -> CatalogConnection:
    """How the settings say the catalog is reached. Raises SettingsError."""
    settings.catalog()
    assert settings.catalog_uri is not None
    return CatalogConnection(
        type=CatalogType(settings.catalog_type),
        uri=settings.catalog_uri,
        timeout_seconds=settings.catalog_timeout_seconds,
        warehouse_location=settings.warehouse_location,
        auth=CatalogAuth(settings.catalog_auth),
        user=settings.catalog_user,
        password=settings.catalog_password,
        token=settings.catalog_token,
        client_id=settings.catalog_client_id,
        client_secret=settings.catalog_client_secret,
        oauth2_token_url=settings.catalog_oauth2_token_url,
        oauth2_scope=settings.catalog_oauth2_scope,
        properties=dict[str, "SecretStr"](settings.catalog_properties),
    )


class CatalogAccess:
    """The connection of each warehouse. One per process and thread.

    A file that is away or half written changes nothing for all warehouses: what was read before stays in use. Where it
    is a warehouse's own, that warehouse's jobs wait, and say why.
    """

    def __init__(self, settings: Settings, read: Callable[[], Settings] = load_settings) -> None:
        self._settings = settings
        self._read = read
        self._seen = _stamps(settings)

    def connection(self, warehouse: str) -> CatalogConnection:
        """How the warehouse is reached now. Raises SettingsError where the catalog is not set at all."""
        self._refresh()
        try:
            own = self._settings.of_warehouse(warehouse)
        except SettingsError as error:
            return catalog_connection(self._settings).impossible(str(error))
        if own is not self._settings:
            hide(own)
        return catalog_connection(own)

    def _refresh(self) -> None:
        stamps = _stamps(self._settings)
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            self._settings = self._read()
        except SettingsError as error:
            log.warning(
                "a file of the settings changed and is of no use; what was read before stays", reason=str(error)
            )
            return
        hide(self._settings)
        self._seen = _stamps(self._settings)
        log.info("the catalog's settings were read again: a file of theirs changed")


def _stamps(settings: Settings) -> tuple[tuple[int, int, int] | None, ...]:
    """What tells a file from the one that stood there before; None for one that is not there."""
    return tuple(_stamp(file) for file in settings.files())


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        # A mounted secret is replaced by moving a link: what the link leads to has another inode then.
        found = os.stat(file)  # noqa: PTH116 - a Path costs as much again, before every job
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
