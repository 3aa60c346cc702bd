"""An operator at the command line, in this process or in one of its own.

Responsible for: running ``reroot`` with an environment that holds nothing else of Reroot's, and its two outputs.
Must not know: what the commands do.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from producer.commands import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NOWHERE = "redis://127.0.0.1:1/0"
"""A broker that refuses: nothing listens on port 1."""


# A shell that starts something in the background lets it ignore Ctrl-C, and children inherit that; a terminal does not.
_PROGRAM: Final = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from producer.cli import main
main()
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Its standard output as one JSON document."""
        return json.loads(self.out)

    @property
    def one_line(self) -> str:
        """Its standard error, which is one line."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


class Operator:
    """Somebody who types ``reroot`` against one database and one broker."""

    def __init__(self, database: str, broker: str = NOWHERE, **settings: str) -> None:
        self.settings = {"REROOT_DATABASE_URL": database, "REROOT_BROKER_URL": broker, **settings}

    def environment(self) -> Mapping[str, str]:
        """The settings, and of the rest what is not Reroot's."""
        rest = {name: value for name, value in os.environ.items() if not name.startswith("REROOT_")}  # noqa: TID251 - the environment of a process to start
        return {**rest, "COLUMNS": "80", **self.settings}

    def types(self, *arguments: str) -> Ended:
        """Run the command in this process."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment(), clear=True),  # noqa: TID251 - as a shell would set it
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run(arguments)
        return Ended(code, out.getvalue(), err.getvalue())

    @contextlib.contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The command in a process of its own, which does not outlive the context."""
        with subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *arguments],
            env=dict(self.environment()),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def runs(self, *arguments: str) -> Ended:
        """Run it in a process of its own, to its end."""
        with self.started(*arguments) as process:
            out, err = process.communicate(timeout=60)
        return Ended(process.returncode, out, err)
