"""``reroot plan``: what would move where, and what would not and why.

Responsible for: the command and its options. It only reads.
Must not know: the reasons (``plan``), SQL.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from producer import plan_output, reach, scope
from producer.ends import USAGE, CommandError
from producer.plan import judged
from producer.screen import Screen
from worker.settings import load_settings

AsCsv = Annotated[bool, typer.Option("--csv", help="One line per dataset instead of text.")]
Rows = Annotated[int, typer.Option("--rows", min=0, help="How many datasets the text names.")]


def plan(
    *,
    dataset: scope.Datasets = None,
    more: scope.MoreIds = None,
    workspace: scope.Workspace = None,
    catalog: scope.Catalog = None,
    limit: scope.Limit = None,
    again: scope.Again = False,
    rows: Rows = 10,
    as_json: scope.AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show what would move where, and what would not and why. Reads only."""
    if as_json and as_csv:
        raise CommandError("--json and --csv exclude one another", USAGE)
    ids = scope.given_ids(dataset, more)
    settings = load_settings()
    with reach.controlplane(settings) as connection:
        chosen = scope.scope_of(connection, ids, workspace, catalog)
        facts = scope.facts_of(connection, chosen, reach.warehouse_of(settings))
        verdicts = judged(facts, again=again, limit=limit, terms=reach.terms_of(settings))
        if as_json:
            plan_output.write_json(verdicts, sys.stdout)
        elif as_csv:
            plan_output.write_csv(verdicts, sys.stdout)
        else:
            screen = Screen()
            survey = plan_output.write_text(verdicts, screen, shown=rows)
            if survey.planned:
                screen.line()
                screen.line("Nothing was done. Next: reroot move --dataset ID --wait (a canary)")
