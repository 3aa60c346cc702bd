"""``reroot doctor``: is everything that moves rely on as it should be, and what helps where it is not.

Responsible for: the command, which systems are asked, its lines and its exit code.
Must not know: what a system is asked (``worker.controlplane``, ``worker.broker``, ``worker.lakehouse`` do).

``--json`` is one document: ``level`` (the worst of all), ``checks`` (each with ``system``, ``name``, ``level``,
``says``, ``remedy`` and ``away``), ``not_asked`` (how many more warehouses there are).

Exit codes: 0 nothing is red · 1 something is · 3 a system is out of reach.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from producer import reach, scope
from producer.ends import LEFT, OUT_OF_REACH
from producer.screen import Screen, age, count
from worker.controlplane.connection import ControlPlaneError
from worker.controlplane.inspection import inspect_postgres, inspect_workers, warehouses_in_use
from worker.controlplane.warehouses import known_warehouses
from worker.inspection import Check, Findings, Level
from worker.settings import SettingsError, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.controlplane.connection import Connection
    from worker.controlplane.warehouses import Warehouse
    from worker.settings import Settings

OneWarehouse = Annotated[str | None, typer.Option("--warehouse", metavar="NAME", help="Only this warehouse.")]
Probe = Annotated[
    bool, typer.Option("--probe", help="Also try a scratch table in each warehouse: made, moved, read, removed again.")
]

MOST_WAREHOUSES: Final = 10
"""Warehouses that are asked where none is named: each costs a dozen requests."""

_STYLES: Final = {Level.GREEN: "green", Level.YELLOW: "yellow", Level.RED: "bold red"}
_WORST: Final = (Level.RED, Level.YELLOW, Level.GREEN)


def doctor(*, warehouse: OneWarehouse = None, probe: Probe = False, as_json: scope.AsJson = False) -> None:
    """Look at Postgres, the broker, the workers and the catalog: what is wrong, and what helps."""
    screen = Screen()
    visit = Visit(load_settings(), warehouse, probe=probe)
    checks: list[Check] = []
    for found in visit.run():
        if not as_json:
            show(found, screen)
        checks += found
    level = next((each for each in _WORST if any(check.level is each for check in checks)), Level.GREEN)
    if as_json:
        screen.json({"level": level, "checks": [asdict(check) for check in checks], "not_asked": visit.not_asked})
    else:
        _conclude(checks, visit.not_asked, screen)
    if any(check.away for check in checks):
        raise typer.Exit(OUT_OF_REACH)
    if level is Level.RED:
        raise typer.Exit(LEFT)


class Visit:
    """One round through the systems. What is not set is said where it is missed, and stops nothing else."""

    def __init__(self, settings: Settings, warehouse: str | None, *, probe: bool) -> None:
        self._settings = settings
        self._chosen = warehouse
        self._probe = probe
        self.not_asked = 0

    def run(self) -> Iterator[list[Check]]:
        """The checks, system by system, as soon as each has been asked."""
        postgres = self._set("postgres", self._postgres)
        yield postgres
        yield self._set("broker", self._broker)
        names = [self._chosen or self._settings.warehouse]
        known: dict[str, Warehouse] = {}
        unasked = any(check.level is Level.RED for check in postgres)
        if not unasked:
            with reach.controlplane(self._settings) as connection:
                yield inspect_workers(connection)
                known = {each.name: each for each in known_warehouses(connection)}
                names = [self._chosen] if self._chosen else self._warehouses(connection)
        for name in names:
            if name is not None:
                yield self._set(f"warehouse {name}", partial(self._warehouse, name, known.get(name)))
        if names in ([], [None]):
            yield self._set("catalog", partial(self._no_warehouse, unasked=unasked))

    def _postgres(self) -> list[Check]:
        direct = self._settings.migration_url
        return inspect_postgres(self._settings.database(), None if direct is None else direct.get_secret_value())

    def _broker(self) -> list[Check]:
        # Late: a client that the other commands do without.
        from worker.broker import inspect_broker  # noqa: PLC0415 - see the line above

        return inspect_broker(
            self._settings.broker(),
            visibility_seconds=self._settings.visibility_timeout_seconds,
            longest_job_seconds=self._settings.time_limit_seconds,
        )

    def _warehouses(self, connection: Connection) -> list[str | None]:
        try:
            names = warehouses_in_use(connection, self._settings.warehouse_for)
        except SettingsError:
            return []
        self.not_asked = max(0, len(names) - MOST_WAREHOUSES)
        return [*names[:MOST_WAREHOUSES]] or [self._settings.warehouse]

    def _warehouse(self, name: str, known: Warehouse | None) -> list[Check]:
        # Late: the composition root brings every catalog's client along.
        from worker.wiring import inspect  # noqa: PLC0415 - see the line above

        return inspect(self._settings, name, probe=self._probe) + _remembered(name, known, self._settings.strategy)

    def _no_warehouse(self, *, unasked: bool) -> list[Check]:
        self._settings.catalog()
        findings = Findings("catalog")
        says = (
            "not known: Postgres could not be asked" if unasked else "no workspace has a dataset yet, so none is known"
        )
        findings.yellow("warehouses", says, "name one: --warehouse NAME")
        return findings.checks

    def _set(self, system: str, ask: Callable[[], list[Check]]) -> list[Check]:
        try:
            return ask()
        except (SettingsError, ControlPlaneError) as error:
            findings = Findings(system)
            for line in error.complaints if isinstance(error, SettingsError) else [str(error)]:
                findings.red("settings", line, "reroot config shows what is set")
            return findings.checks


def _remembered(name: str, known: Warehouse | None, setting: str) -> list[Check]:
    """What the ledger knows of the warehouse from the moves so far."""
    findings = Findings(f"warehouse {name}")
    if setting != "auto":
        findings.green("strategy", f"{setting}, by REROOT_STRATEGY")
    elif known is None or known.strategy is None:
        findings.green("strategy", "auto: the first moves find it out")
    else:
        findings.green("strategy", f"{known.strategy}: {known.reason or 'found out'}")
    if known is not None and known.away_for is not None:
        says = f"noted as away for {age(known.away_for)}: {known.away_because}"
        findings.yellow("jobs", says, "they are sent again by themselves once it answers")
    return findings.checks


def show(checks: list[Check], screen: Screen) -> None:
    """The lines of one system."""
    if not checks:
        return
    screen.heading(checks[0].system)
    for check in checks:
        screen.line(f"  {check.level:<7} {check.name:<12} {check.says}", _STYLES[check.level])
        if check.remedy:
            screen.line(f"          {'':<12} what helps: {check.remedy}")


def _conclude(checks: list[Check], not_asked: int, screen: Screen) -> None:
    screen.line()
    if not_asked:
        more = count(not_asked, "more warehouse was not asked", "more warehouses were not asked")
        screen.line(f"{more}: reroot doctor --warehouse NAME")
    numbers = {level: sum(check.level is level for check in checks) for level in _WORST}
    screen.line(", ".join(f"{number} {level}" for level, number in numbers.items() if number))
