"""What the contract tests say at the end of a run.

Responsible for: one line for each catalog that was asked, as a Markdown table that can be pasted into an issue; for a
server that the environment names, one line for each promise as well.
Must not know: the catalogs.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.nightly import NIGHTLY

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDINGS: Final = pytest.StashKey[list[str]]()
"""One line for each recording that was asked again."""

LEFT_BEHIND: Final[list[str]] = []
"""Namespaces of this run that a server which the environment names did not let go."""

_ASKED: Final = re.compile(
    r"tests/contract/test_(?:catalog_contract|names)\.py::(?:(?P<group>\w+)::)?test_(?P<test>\w+)\[(?P<subject>.+?)\](?:@|$)"
)
_LONGEST: Final = 160
ENDS: Final = ("kept", "not by its nature", "broken", "not tried")
"""``not tried``: the catalog was left out, or did not come up."""


def asked_for(config: pytest.Config) -> bool:
    """Whether the run is about the contract alone, or the long one. All others end in one screen."""
    return NIGHTLY or all("contract" in argument for argument in config.args)


@dataclass(eq=False)
class Results:
    """How each promise ended on each catalog: one of ``ENDS``, with the reason.

    A plugin of the run as a whole, so that it hears of every test, in whichever process it ran.
    """

    ends: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test, its preparation or its clearing up ended; the worst of them stays."""
        found = _ASKED.search(report.nodeid)
        if found is None:
            return
        key = found["subject"], _sentence(found)
        if report.when == "setup" and not report.passed:
            self.ends[key] = "not tried", _first_line(report)
        elif report.failed:
            self.ends[key] = "broken", _first_line(report)
        elif report.when == "call" and hasattr(report, "wasxfail"):
            self.ends[key] = "not by its nature", str(report.wasxfail)
        elif report.when == "call" and report.passed:
            self.ends.setdefault(key, ("kept", ""))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the tables, where somebody asked for the contract."""
        if self.ends and asked_for(terminalreporter.config):
            terminalreporter.section("the contract, catalog by catalog")
            terminalreporter.write_line("\n".join(self.lines()))

    def lines(self) -> Iterator[str]:
        """The counts of each catalog; of one that the environment names, its promises one by one as well."""
        yield f"| catalog | promises | {' | '.join(ENDS)} |"
        yield "|---|---|" + "---|" * len(ENDS)
        for subject in dict.fromkeys(subject for subject, _ in self.ends):
            counts = Counter(end for (name, _), (end, _) in self.ends.items() if name == subject)
            numbers = [counts.total(), *(counts[end] for end in ENDS)]
            yield f"| {subject} | {' | '.join(map(str, numbers))} |"
        named = {sentence: end for (subject, sentence), end in self.ends.items() if subject.startswith(NAMED)}
        if named:
            yield ""
            yield "| promise | | |"
            yield "|---|---|---|"
            yield from (f"| {sentence} | {end} | {why} |" for sentence, (end, why) in named.items())
        if LEFT_BEHIND:
            yield ""
            yield f"left on the server, drop them by hand: {', '.join(LEFT_BEHIND)}"


NAMED: Final = "named "
"""How the names of catalogs begin that the environment names."""


def _sentence(found: re.Match[str]) -> str:
    group = re.sub(r"(?<!^)(?=[A-Z])", " ", (found["group"] or "").removeprefix("Test")).lower()
    return ": ".join(part for part in (group, found["test"].replace("_", " ")) if part)


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = " ".join(str(crash.message if crash else report.longrepr).split()).replace("|", "\\|")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
