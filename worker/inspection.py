"""What an inspection of the systems around says: one value for each thing that was looked at.

Responsible for: the three levels, and that whatever is not green carries what helps.
Must not know: any system, how a check is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How it stands."""

    GREEN = "green"
    """As it should be, or a fact that is good to know."""
    YELLOW = "yellow"
    """Works, with a weakness; or it could not be looked at."""
    RED = "red"
    """Jobs fail or wait because of it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    ``system`` is what a person would go to (``postgres``, ``broker``, ``workers``, ``warehouse w_1``). ``says`` is one
    line, ``remedy`` what helps where it is not green; neither holds a secret.
    """

    system: str
    name: str
    level: Level
    says: str
    remedy: str = ""
    away: bool = False
    """The system cannot be reached at all."""


class Findings:
    """The checks of one system, in the order in which they were made."""

    def __init__(self, system: str) -> None:
        self.system = system
        self.checks: list[Check] = []

    def green(self, name: str, says: str) -> None:
        """It is as it should be."""
        self.checks.append(Check(self.system, name, Level.GREEN, says))

    def yellow(self, name: str, says: str, remedy: str) -> None:
        """It works, with a weakness."""
        self.checks.append(Check(self.system, name, Level.YELLOW, says, remedy))

    def red(self, name: str, says: str, remedy: str, *, away: bool = False) -> None:
        """Something fails because of it."""
        self.checks.append(Check(self.system, name, Level.RED, says, remedy, away))


def skewed(findings: Findings, what: str, seconds: float, *, harmless: bool) -> None:
    """Judge the distance between a system's clock and this machine's: signed requests allow 15 minutes."""
    says = f"{what} is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} this machine's"
    remedy = "set the clocks by NTP, on both sides"
    if abs(seconds) < _UNREMARKABLE:
        findings.green("clock", f"{what} agrees with this machine's")
    elif harmless or abs(seconds) < _REFUSED:
        findings.yellow("clock", says, remedy)
    else:
        findings.red("clock", f"{says}: signed requests and tokens are refused", remedy)


_UNREMARKABLE = 30.0
_REFUSED = 300.0
