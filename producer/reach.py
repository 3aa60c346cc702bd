"""How a command reaches the control plane and the broker.

Responsible for: opening and closing, from the settings.
Must not know: what is asked or sent.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from producer.caution import Terms
from producer.ends import OUT_OF_REACH, CommandError
from producer.publish import Window, ring
from producer.strategies import AUTO
from worker.app import CeleryDoorbell
from worker.controlplane.connection import connect
from worker.controlplane.election import elected
from worker.controlplane.planning import OWN_WAREHOUSE
from worker.controlplane.warehouses import tenant_warehouse
from worker.doorbell import BrokerAwayError
from worker.moves.ports import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.controlplane.connection import Connection
    from worker.settings import Settings


@contextmanager
def controlplane(settings: Settings) -> Iterator[Connection]:
    """A connection in autocommit mode. Raises SettingsError, ControlPlaneAwayError."""
    with closing(connect(settings.database(), role="producer")) as connection:
        yield connection


def warehouse_of(settings: Settings) -> str:
    """The warehouse setting as the plan compares names: a fixed name, or a template with the workspace in it."""
    return settings.warehouse or settings.warehouse_template or OWN_WAREHOUSE


def terms_of(settings: Settings) -> Terms:
    """Under what terms datasets would move, as the plan weighs them."""
    return Terms(settings.grace_seconds, None if settings.strategy == AUTO else Strategy(settings.strategy))


def warehouse_of_workspace(settings: Settings, connection: Connection, workspace_id: str) -> str:
    """The one warehouse that holds a workspace's tables: its row in ``reroot.tenants``, else the setting."""
    return tenant_warehouse(connection, workspace_id) or settings.warehouse_for(workspace_id)


def publish(settings: Settings, connection: Connection) -> int:
    """Publish what is due, unless a sweeper does so at this moment; how many messages were sent.

    Two at once would each fill the queue's window. Raises CommandError where the broker is away.
    """
    window = Window(settings.queue_window, settings.republish_after_seconds, settings.longest_attempt_seconds)
    with controlplane(settings) as second, elected(second) as won, CeleryDoorbell(settings.broker()) as doorbell:
        try:
            return ring(connection, doorbell, window if won else None)
        except BrokerAwayError as error:
            raise CommandError(
                f"the broker cannot be reached: {error}; the ledger has the jobs, the workers' sweepers will publish",
                OUT_OF_REACH,
            ) from error
