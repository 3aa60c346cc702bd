"""What a run has shown, as JSON and as a table for a person.

Responsible for: the report's shape. Must not know: how the figures came about.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tests.chaos.verdict import missing_commits, missing_files, stuck, untrue, violations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.chaos.run import Result


def report(result: Result) -> dict[str, Any]:
    """Everything that is worth keeping, ready for JSON."""
    seen = result.seen
    wrong = violations(seen)
    return {
        "options": asdict(result.options),
        "violations": wrong,
        "stories": {name: story for name, story in result.look.stories.items() if any(name in line for line in wrong)},
        "datasets": dict(sorted(Counter(str(end.state) for end in seen.ends).items())),
        "stuck": [end.subject.dataset_id for end in stuck(seen)],
        "parked": [
            {
                "dataset": end.subject.dataset_id,
                "code": end.park_code,
                "text": end.park_text,
                "names": [name.identifier for name in end.names],
                "true": untrue(end) is None,
            }
            for end in seen.ends
            if end.state == "parked"
        ],
        "reads": dict(result.reading) | {"failed": result.reading["failed"]},
        "failed reads": list(seen.failed_reads),
        "commits": {
            "acknowledged": len(seen.commits),
            "missing": len(missing_commits(seen)),
            "writers": dict(result.writing),
            "engine": dict(result.engines),
        },
        "files": {
            "before": len(seen.files_before),
            "after": len(seen.files_after),
            "missing": len(missing_files(seen)),
        },
        "messages left": seen.messages_left,
        "disasters": {str(disaster): count for disaster, count in sorted(result.struck.items())},
        "orders": dict(sorted(result.orders.items())),
        "processes killed": result.processes_killed,
        "workers that ended by themselves": result.ended_by_themselves,
        "faults of requests": result.faults,
        "requests": result.requests,
        "events": dict(result.look.events),
        "seconds from the last disaster until all had ended": round(result.seconds_to_end, 1),
    }


def table(told: Mapping[str, Any]) -> str:
    """The same for a person, shorter."""
    return "\n".join(_lines(told))


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    options = told["options"]
    yield (
        f"{options['datasets']} datasets, {options['seconds']:g} s of disasters, seed {options['seed']},"
        f" strategy {options['strategy']}"
    )
    yield from _section("disasters that took place", told["disasters"])
    yield from _section("faults of requests", told["faults of requests"])
    yield from _section("an operator's orders that had an effect", told["orders"])
    yield ""
    reads, commits, files = told["reads"], told["commits"], told["files"]
    yield from _row("processes killed", told["processes killed"])
    yield from _row("workers that ended by themselves, started again", told["workers that ended by themselves"])
    yield from _row("requests that reached the catalog's proxy", sum(told["requests"].values()))
    yield from _row("reads, failed", f"{reads.get('reads', 0)}, {reads['failed']}")
    yield from _row("commits acknowledged, missing", f"{commits['acknowledged']}, {commits['missing']}")
    yield from _row("files before, after, missing", f"{files['before']}, {files['after']}, {files['missing']}")
    yield from _row("datasets", ", ".join(f"{count} {state}" for state, count in told["datasets"].items()))
    yield from _row("stuck, messages left", f"{len(told['stuck'])}, {told['messages left']}")
    yield from _row("seconds until all had ended", told["seconds from the last disaster until all had ended"])
    for parked in told["parked"]:
        truth = "true" if parked["true"] else "NOT TRUE"
        yield f"  parked {parked['dataset']} {parked['code']} ({truth}): {parked['text']}"
    yield ""
    yield f"{len(told['violations'])} violations"
    yield from (f"  {violation}" for violation in told["violations"])


def _section(title: str, counts: Mapping[str, int]) -> Iterator[str]:
    yield ""
    yield title
    for name, count in counts.items():
        yield from _row(f"  {name}", count)


def _row(name: str, value: object) -> Iterator[str]:
    yield f"{name:<64} {value}"
