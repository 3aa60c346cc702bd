"""The state machine is data: the picture, the constraint and the statements say what the table says."""

from __future__ import annotations

import re
from pathlib import Path

from worker.controlplane import lock, operations
from worker.moves.machine import LEGAL, TRANSITIONS, WORKABLE, Direction, State

ROOT = Path(__file__).parents[2]
LEDGER = (ROOT / "worker/controlplane/migrations/ledger.sql").read_text()


def constraint(name: str) -> set[str]:
    found = re.search(rf"CONSTRAINT {name} CHECK \(\w+ IN \(([^)]*)\)\)", LEDGER)
    assert found is not None
    return set(re.findall(r"'(\w+)'", found[1]))


def test_the_picture_in_the_docs_is_the_table() -> None:
    text = (ROOT / "docs/lifecycle.md").read_text()
    drawn = re.findall(r"^  (\S+) --> (\S+): (\w) · (.+)$", text, re.MULTILINE)
    assert drawn == [(t.source or "[*]", t.target or "[*]", t.letter, t.meaning) for t in TRANSITIONS]


def test_the_check_constraints_list_the_same_states() -> None:
    assert constraint("moves_state_known") == {state.value for state in State}
    assert constraint("moves_direction_known") == {direction.value for direction in Direction}


def test_every_state_is_reached_and_every_workable_state_is_left() -> None:
    reached = {t.target for t in TRANSITIONS}
    assert reached == {*State, None}
    for state in WORKABLE:
        assert any(t.source is state for t in TRANSITIONS)
    assert any(t.source is None for t in TRANSITIONS)


def test_a_letter_means_one_thing() -> None:
    meanings = {(t.letter, t.meaning) for t in TRANSITIONS}
    assert len(meanings) == len({letter for letter, _ in meanings})


def test_statements_write_only_legal_targets() -> None:
    """Whatever a module of the control plane sets a state to is the target of some transition."""
    for module in (lock, operations):
        source = Path(module.__file__ or "").read_text()
        for target in re.findall(r"SET state = '(\w+)'", source):
            assert any(after == target for _, after in LEGAL), f"{module.__name__} writes {target}"
