"""What a run of the tests leaves out, and why: one block at the end of the run.

Responsible for: one way to leave a test out, the block, and the failure of a run that may leave nothing out
(``REROOT_TEST_NO_SKIP=1``). A plugin of pytest.
Must not know: what is missing on this machine.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def nothing_may_be_left_out() -> bool:
    """Whether this run fails when it leaves anything out, as the build does."""
    # The switch of a test run, not a setting of the program.
    return os.environ.get("REROOT_TEST_NO_SKIP") == "1"  # noqa: TID251 - see the line above


def leave_out(reason: str) -> NoReturn:
    """Leave the current test out because this machine lacks something; ``reason`` says what, and how to get it."""
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write the block."""
    terminalreporter.section("left out")
    for line in lines(terminalreporter.stats):
        terminalreporter.line(line)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let the run fail where something was left out and nothing may be."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == pytest.ExitCode.OK and nothing_may_be_left_out() and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def lines(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """The block's lines: each reason with its count, what is expected to fail, and whether the run fails for it."""
    reasons = Counter(_reason(report) for report in stats.get("skipped", []))
    yield from (f"{count} left out: {reason}" for reason, count in reasons.most_common())
    if not reasons:
        yield "nothing was left out"
    elif nothing_may_be_left_out():
        yield "the run fails for it: REROOT_TEST_NO_SKIP=1 lets nothing be left out"
    if expected := len(stats.get("xfailed", [])):
        yield f"{expected} run and expected to fail, for what a catalog cannot do by its nature (-rx lists them)"


def _reason(report: pytest.TestReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ")
