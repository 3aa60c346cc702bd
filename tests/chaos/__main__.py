"""``python -m tests.chaos``: one run and its report. Exit code 0: nothing was violated; 1: something was."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from demo.processes import ServiceError
from tests.chaos.report import report, table
from tests.chaos.run import Options, run
from tests.support.fetch_catalogs import fetch


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Disasters for minutes; see what holds.")
    parser.add_argument("--datasets", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--strategy", choices=["register", "rename", "auto"], default="register")
    parser.add_argument("--report", type=Path, help="a file for the report, in JSON")
    parser.add_argument("--keep", action="store_true", help="keep the folder with every log")
    asked = parser.parse_args(arguments)
    problem = fetch()
    if problem is not None:
        sys.stderr.write(f"no reference Iceberg REST server: {problem}\n")
        return 3
    folder = Path(tempfile.mkdtemp(prefix="reroot-chaos-"))
    begun = time.monotonic()
    try:
        options = Options(asked.datasets, asked.minutes * 60, asked.seed, asked.strategy)
        result = run(options, folder, lambda line: _say(f"{time.monotonic() - begun:6.1f} s  {line}"))
        told = report(result)
    except ServiceError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        if asked.keep:
            _say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if asked.report is not None:
        asked.report.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    _say(table(told))
    return 1 if told["violations"] else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
