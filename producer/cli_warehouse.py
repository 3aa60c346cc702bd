"""``reroot warehouse``: how tables are moved in each warehouse, and an operator's word about it.

Responsible for: the command, its lines.
Must not know: SQL, how a strategy is found out.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from producer import reach
from producer.ends import USAGE, CommandError
from producer.screen import Screen
from worker.controlplane import warehouses
from worker.controlplane.inspection import warehouses_in_use
from worker.moves.ports import Strategy
from worker.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from worker.controlplane.connection import Connection
    from worker.controlplane.warehouses import Warehouse
    from worker.settings import Settings


class Choice(StrEnum):
    """What an operator may say."""

    AUTO = "auto"
    REGISTER = "register"
    RENAME = "rename"


Name = Annotated[str | None, typer.Argument(metavar="WAREHOUSE", help="Only this one; needed with --strategy.")]
Said = Annotated[Choice | None, typer.Option("--strategy", help="From now on; auto: find it out anew.")]


def warehouse(name: Name = None, *, strategy: Said = None) -> None:
    """Show how tables are moved in each warehouse, or say it for one."""
    if (strategy is not None and name is None) or (name is not None and not name.strip()):
        raise CommandError("say which: reroot warehouse WAREHOUSE --strategy …", USAGE)
    settings = load_settings()
    screen = Screen()
    with reach.controlplane(settings) as connection:
        if strategy is not None and name is not None:
            said = None if strategy is Choice.AUTO else Strategy(strategy.value)
            if not _is_used(connection, settings, name):
                screen.warn(f"nothing uses a warehouse {name} yet: see that the name is right")
            warehouses.set_strategy(connection, name, said)
        known = [each for each in warehouses.known_warehouses(connection) if name in {None, each.name}]
        if not known:
            screen.line("Nothing is known of it yet: the first move finds it out." if name else "None is known yet.")
        for each in known:
            _show(screen, each, settings.strategy)


def _is_used(connection: Connection, settings: Settings, name: str) -> bool:
    """Whether any workspace, row or setting knows the name; also where the settings do not say enough to tell."""
    if name in {settings.warehouse, *settings.catalog_overrides}:
        return True
    if any(each.name == name for each in warehouses.known_warehouses(connection)):
        return True
    try:
        return name in warehouses_in_use(connection, settings.warehouse_for)
    except SettingsError:
        return True


def _show(screen: Screen, each: Warehouse, setting: str) -> None:
    standing = each.strategy.value if each.strategy else "not known yet"
    screen.heading(f"{each.name}  {standing}")
    if each.reason:
        screen.line(f"  because   {each.reason}")
    if setting != Choice.AUTO and not each.set_by_operator:
        screen.line(f"  but       REROOT_STRATEGY={setting} decides")
    if each.away_for is not None:
        screen.line(f"  away      for {each.away_for:.0f} s: {each.away_because}")
