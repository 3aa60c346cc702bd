"""``make demo``: the whole story, from a flat namespace to a tree, on real data and real processes.

Responsible for: the order of the steps and what is said about each.
Must not know: how a step is done.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from demo.inventory import inventory
from demo.population import append, populate
from demo.processes import ServiceError, wait_until
from demo.proof import Found, Reader, listing, look
from demo.runs import run_folder
from demo.showing import Narrator, table_tree
from demo.stack import GRACE_SECONDS, PROGRAM, ROOT, Stack

if TYPE_CHECKING:
    from types import FrameType

    from demo.population import Born

CANARY: Final = "Hawaiian Airlines Inc."
APPENDED_ROWS: Final = 3
INTERRUPTED: Final = 130


class Demo:
    """One run, step by step."""

    def __init__(self, stack: Stack, narrator: Narrator) -> None:
        self.stack = stack
        self.say = narrator
        self.born: list[Born] = []
        self.before: dict[str, Found] = {}
        self.files: dict[str, str] = {}
        self.flower = ""
        """Its address, where it was started before the first move: it shows only what it has seen."""

    def run(self) -> None:
        """Every step; the first that does not hold raises ServiceError."""
        self.fill()
        with Reader() as reader:
            self.witness(reader)
            self.move()
            self.prove(reader)
            self.append(reader)

    def fill(self) -> None:
        """A control plane and a lakehouse as they are on the day before."""
        self.say.step("Creating the control plane: its own tables, then Reroot's migrations")
        self.stack.migrate()
        holdings = inventory()
        self.say.step(f"Writing {len(holdings)} datasets of real data, all born in one flat namespace")
        self.born = populate(self.stack.control_plane_url, self.stack.lakehouse, holdings)
        self.show_tree("The lakehouse before")

    def witness(self, reader: Reader) -> None:
        """What an independent reader sees before anything moves."""
        self.say.step("Reading every row with DuckDB, every file with SHA-256")
        self.before = self.look(reader)
        self.files = listing(self.stack.tables)
        rows = sum(found.rows for found in self.before.values())
        self.say.detail(f"{len(self.before)} tables, {rows:,} rows, {len(self.files)} files")

    def move(self) -> None:
        """A canary, then all; then the grace period, then the closing check."""
        self.say.step("Starting two workers (celery -A worker.app worker -Q moves)")
        self.stack.start_workers(2, processes=2)
        self.say.step("What would move where, and what would not")
        self.reroot("plan", "--rows", "2")
        self.say.step("One dataset first: the canary")
        canary = next(one for one in self.born if one.holding.name == CANARY)
        self.reroot("move", "--dataset", canary.dataset_id, "--wait")
        self.say.step("Then all of them")
        self.reroot("move", "--all", "--wait")
        self.say.step(f"Waiting for the grace period ({GRACE_SECONDS} s here): the old names retire")
        wait_until(lambda: self.stack.unfinished() == 0, seconds=60, what="every move is done")
        self.show_tree("The lakehouse after")
        self.say.step("The closing check")
        self.reroot("check")

    def prove(self, reader: Reader) -> None:
        """The same rows and the same files, by readers that are not ours."""
        self.say.step("Reading everything again with DuckDB and SHA-256")
        after = self.look(reader)
        moved = 0
        for dataset_id, was in self.before.items():
            now = after[dataset_id]
            if (now.rows, now.fingerprint) != (was.rows, was.fingerprint):
                raise ServiceError(f"{now.identifier} does not hold the rows that {was.identifier} held")
            moved += now.identifier != was.identifier
        if listing(self.stack.tables) != self.files:
            raise ServiceError("the files in storage are not what they were")
        self.say.detail(f"{moved} tables have a new name; {sum(f.rows for f in after.values()):,} rows are the same")
        self.say.detail(f"{len(self.files)} files are the same, byte for byte: none added, none gone")

    def append(self, reader: Reader) -> None:
        """A program of the control plane goes on writing: it asks the resolver, as it always did."""
        one = next(one for one in self.born if one.holding.name == CANARY)
        rows = one.holding.commits[0].slice(0, APPENDED_ROWS)
        self.say.step("Appending to a moved table: lock, resolver, signed commit")
        identifier = append(self.stack.control_plane_url, self.stack.lakehouse, one, rows)
        now = look(self.stack.control_plane_url, self.stack.catalog_url, [one], reader)[one.dataset_id]
        if now.rows != self.before[one.dataset_id].rows + APPENDED_ROWS:
            raise ServiceError(f"{identifier} has {now.rows} rows after the append")
        self.say.detail(f"{identifier}")
        self.say.detail(f"{self.before[one.dataset_id].rows} + {APPENDED_ROWS} = {now.rows} rows, read back by DuckDB")

    def keep(self) -> None:
        """Leave it running, and say how to use it, until Ctrl-C."""
        self.say.step("Everything stays up until Ctrl-C. In another terminal:")
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.stack.settings.items()]
        reroot = shlex.quote(str(PROGRAM))
        lines = [f"cd {shlex.quote(str(ROOT))}", *exports, f"{reroot} status", f"{reroot} --help"]
        sys.stdout.write("\n".join(lines) + f"\n\nFlower: {self.flower}/tasks\n")
        sys.stdout.flush()
        signal.pause()

    def look(self, reader: Reader) -> dict[str, Found]:
        """Every table that was ever written, through the resolver's name."""
        written = [one for one in self.born if not one.holding.failed]
        return look(self.stack.control_plane_url, self.stack.catalog_url, written, reader)

    def show_tree(self, title: str) -> None:
        """The tree as the catalog has it now."""
        self.say.step(title)
        self.say.tree(table_tree(self.stack.control_plane_url, self.stack.catalog_url, self.born))

    def reroot(self, *words: str) -> None:
        """Run the command as a person would. Raises ServiceError when it does not end with 0."""
        self.say.command(shlex.join(("reroot", *words)))
        code = self.stack.reroot(*words)
        if code != 0:
            raise ServiceError(f"reroot {words[0]} ended with exit code {code}")


def main() -> int:
    """Run it. 0: everything held; 1: something did not, in one line; 130: interrupted."""
    parser = argparse.ArgumentParser(prog="python -m demo", description="See Reroot work on real data.")
    parser.add_argument("--keep", action="store_true", help="keep everything running at the end")
    parser.add_argument("--folder", type=Path, default=ROOT / ".demo", help="where it may write (default: .demo)")
    options = parser.parse_args()
    os.umask(0o022)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Under nohup SIGHUP stays ignored. SIGINT never does, also in the background: it ends a run that is kept.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupted)
    say = Narrator()
    try:
        with run_folder(options.folder.resolve()) as folder:
            say.step("Starting Postgres and Valkey from their packages")
            with Stack(folder) as stack:
                demo = Demo(stack, say)
                if options.keep:
                    demo.flower = stack.start_flower()
                demo.run()
                say.step("Everything held.")
                if options.keep:
                    demo.keep()
    except ServiceError as error:
        sys.stderr.write(f"demo: {error}\n(its logs are in {options.folder} until the next run)\n")
        return 1
    except KeyboardInterrupt:
        say.step("Interrupted; nothing is left running")
        return 0 if options.keep else INTERRUPTED
    say.step("Nothing is left running")
    return 0


def _interrupted(_number: int, _frame: FrameType | None) -> None:
    """Once is enough: a second Ctrl-C must not interrupt the clean-up (it is bounded, and guarded besides)."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        status = main()
    except KeyboardInterrupt:  # raised once more, on the way out, by a library that holds signals back for a while
        status = INTERRUPTED
    sys.exit(status)
