"""Situations in which the crash and fault matrix begins: what stands where, by which strategy, on which catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.support.catalog_double import Call, CatalogDouble
from tests.support.faults import Crashed, Fault, PortCall, faults_of
from tests.support.twin_stage import DATASET, ELSEWHERE, NAME, NEW, OLD, Process, TwinStage, struck
from worker.identifiers import TableIdentifier, quarantine_identifier
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, SoakFault
from worker.moves.machine import State
from worker.moves.policy import Policy
from worker.moves.ports import Strategy
from worker.outcome import ParkCode

Struck = Sequence[tuple[PortCall, Fault]]


@dataclass(frozen=True)
class Scene:
    """One situation. ``prepare`` brings a fresh stage into it."""

    name: str
    strategy: Strategy | None = None
    prepare: Callable[[TwinStage], object] = lambda _: None
    offers_rename: bool = True
    once: bool = False
    ends: State = State.DONE
    """Where it ends when nothing fails."""
    calls: int | None = None
    """How many of its calls are struck, where it only repeats itself afterwards."""
    without: frozenset[Fault] = frozenset()
    """Faults that are no single fault here, because the scene begins with one."""
    request_seconds: float = 0.0
    """How long every request to the catalog takes."""
    window: float = 0.0
    """Seconds for which readers may miss the table when nothing fails."""

    last_attempt: bool = False
    """One attempt is left: whatever strikes it is the reason for which it is parked."""

    def build(self) -> TwinStage:
        """A fresh stage in this situation."""
        catalog = CatalogDouble(offers_rename=self.offers_rename, once=self.once)
        stage = TwinStage(Policy(strategy=self.strategy), catalog, request_seconds=self.request_seconds)
        self.prepare(stage)
        return stage

    def faults_of(self, call: PortCall) -> list[Fault]:
        """Every fault that can strike this call in this scene."""
        return [fault for fault in faults_of(call) if fault not in self.without]

    def may_park(self, stage: TwinStage, struck: Struck) -> bool:
        """Whether the reason for which it is parked is true."""
        return self.last_attempt or TRUE_REASONS.get(ParkCode(stage.row.park_code or ""), _never)(stage, struck)


def _never(stage: TwinStage, struck: Struck) -> bool:
    return False


def _diverged(stage: TwinStage, struck: Struck) -> bool:
    """Something was committed that the live name does not hold."""
    return bool(stage.account.missing_from([stage.catalog.names[stage.live]]))


def _doubtful(stage: TwinStage, struck: Struck) -> bool:
    """The same, or another table is in the way, or a metadata file is gone and no commit is seen that cleaned it up."""
    stale = any((call.method, fault) == ("load", Fault.STALE) for call, fault in struck)
    return _diverged(stage, struck) or bool(stage.foreign) or (bool(stage.cleaned) and stale)


def _refused(stage: TwinStage, struck: Struck) -> bool:
    """The catalog holds a table only once, and nobody has said that it may be asked for otherwise."""
    return stage.catalog.once


TRUE_REASONS: Final[dict[ParkCode, Callable[[TwinStage, Struck], bool]]] = {
    ParkCode.WITHDRAWAL_DOUBTFUL: _doubtful,
    ParkCode.REFUSED: _refused,
    ParkCode.NO_PLACE: lambda stage, _: stage.plane.datasets[DATASET].schema_id is None,
    ParkCode.DIVERGED: _diverged,
    ParkCode.SOAK_FAILED: lambda stage, _: bool(stage.catalog.broken),
    ParkCode.SOURCE_REPLACED: lambda stage, _: bool(stage.foreign),
    ParkCode.NAME_TAKEN: lambda stage, _: NEW in stage.catalog.names and NEW not in stage.pointers(),
    ParkCode.NAME_HIDDEN: lambda stage, _: NEW in stage.catalog.hidden,
    ParkCode.TABLE_UNREADABLE: lambda stage, _: NEW.namespace not in stage.catalog.namespaces,
    ParkCode.EXHAUSTED: lambda stage, _: NEW.namespace not in stage.catalog.namespaces,
}


def dies_at(stage: TwinStage, method: str, *, nth: int = 1, after: bool = False) -> None:
    """An attempt that dies at the n-th call of ``method``."""
    seen = 0

    def strike(process: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        nonlocal seen
        seen += call.method == method
        if call.method == method and seen == nth:
            if after:
                stage.faults.plainly(call, perform)
            raise Crashed
        return stage.faults.plainly(call, perform)

    kept, stage.strike = stage.strike, strike
    stage.attempt()
    stage.strike = kept
    assert seen == nth


def _stale_registration(stage: TwinStage) -> None:
    dies_at(stage, "soak")
    stage.engine_commits(OLD)


def _ahead(stage: TwinStage) -> None:
    dies_at(stage, "soak")
    stage.engine_commits(NEW)


def _another_schema(stage: TwinStage) -> None:
    dies_at(stage, "soak")
    stage.plane.datasets[DATASET].schema_id = "t"


def _renamed_and_another_schema(stage: TwinStage) -> None:
    dies_at(stage, "rename", after=True)
    stage.plane.datasets[DATASET].schema_id = "t"


def _no_schema(stage: TwinStage) -> None:
    dies_at(stage, "soak")
    stage.plane.datasets[DATASET].schema_id = None


def _reverted(stage: TwinStage) -> None:
    stage.settle()
    stage.writer_commits()
    assert stage.operator.revert(DATASET)


def _reverted_in_grace(stage: TwinStage) -> None:
    stage.attempt()
    stage.writer_commits()
    assert stage.operator.revert(DATASET)


def _decided(stage: TwinStage, *, keep_new: bool) -> None:
    """Both sides were written to after the flip, and a person has decided; the schema is another one since."""
    stage.attempt()
    stage.writer_commits()
    stage.engine_commits(OLD)
    stage.settle()
    assert stage.row.park_code == ParkCode.DIVERGED
    assert stage.resolve(keep_new=keep_new)
    stage.plane.datasets[DATASET].schema_id = "t"


def _stray(stage: TwinStage, *, keep_new: bool) -> None:
    """A registration of an earlier target was written to, and so was the old name; a person has decided."""
    dies_at(stage, "soak")
    stage.engine_commits(NEW)
    stage.engine_commits(OLD)
    stage.plane.datasets[DATASET].schema_id = "t"
    stage.settle()
    assert stage.row.park_code == ParkCode.DIVERGED
    assert stage.resolve(keep_new=keep_new)


def _changed_since_planned(stage: TwinStage) -> None:
    """The target is not the planned one, it and the old name were written to, and a person has decided."""
    stage.plane.datasets[DATASET].schema_id = "t"
    dies_at(stage, "soak")
    stage.engine_commits(TableIdentifier.within(ELSEWHERE, NAME))
    stage.engine_commits(OLD)
    stage.settle()
    assert stage.row.park_code == ParkCode.DIVERGED
    assert stage.resolve(keep_new=True)


def _stray_after_the_flip(stage: TwinStage) -> None:
    """A registration of an earlier target came late, after the flip, and was written to; a person has decided."""

    def strike(process: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        if call.method == "register" and not stage.late:
            return struck(stage, process, call, perform, Fault.LATE)
        return stage.faults.plainly(call, perform)

    kept, stage.strike = stage.strike, strike
    stage.attempt()
    stage.plane.datasets[DATASET].schema_id = "t"
    assert stage.pass_time_until_due()
    stage.attempt()
    stage.strike = kept
    stage.late_arrive()
    assert stage.row.state is State.FLIPPED
    stage.writer_commits()
    stage.engine_commits(NEW)
    stage.settle()
    assert stage.row.park_code == ParkCode.DIVERGED
    assert not stage.resolve(keep_new=False)
    assert stage.resolve(keep_new=True)


def _set_back(stage: TwinStage) -> None:
    """Another hand has put the live name on an older metadata file."""
    first = stage.catalog.names[OLD]
    stage.engine_commits(OLD)
    stage.attempt()
    stage.catalog.hold(NEW, first)


def _cleaned_up(stage: TwinStage) -> None:
    """Commits under the new name have cleaned up the metadata file of the old one."""
    stage.attempt()
    stage.catalog.log_length = 1
    for _ in range(3):
        stage.writer_commits()
    stage.clean_up(stage.catalog.names[OLD])


def _written_to_after(stage: TwinStage) -> None:
    """An engine commits through the name that was left, and a writer through the live one."""
    stage.attempt()
    stage.writer_commits()
    stage.engine_commits(OLD)


def _left_in_quarantine(stage: TwinStage, *, free_again: bool) -> None:
    """A commit through the left name was fenced, another hand took the name meanwhile, and a person retries."""

    def strike(process: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        result = stage.faults.plainly(call, perform)
        if call.method == "rename":
            stage.another_hand_creates(OLD)
        return result

    stage.attempt()
    stage.engine_commits(OLD)
    assert stage.pass_time_until_due()
    kept, stage.strike = stage.strike, strike
    stage.attempt()
    stage.strike = kept
    assert stage.row.park_code == ParkCode.WITHDRAWAL_DOUBTFUL
    if free_again:
        stage.other_hands_leave()
    assert stage.operator.retry(DATASET)


def _taken(stage: TwinStage) -> None:
    """Another table has the name that the dataset's table is to get."""
    stage.another_hand_creates(NEW)


def _taken_after_an_open_rename(stage: TwinStage) -> None:
    dies_at(stage, "rename")
    stage.another_hand_creates(NEW)


def _reverted_while_hidden(stage: TwinStage) -> None:
    """An authorizer hides the place, which is the live one: 404 for the table and for its namespace."""
    _reverted_in_grace(stage)
    stage.catalog.namespaces.discard(NEW.namespace)
    stage.catalog.before = _hiding


def _hiding(call: Call) -> None:
    asked = call.arguments[0]
    if call.method == "load" and isinstance(asked, TableIdentifier) and asked.namespace == NEW.namespace:
        raise CatalogError(ErrorCode.TABLE_MISSING, ErrorKind.PERMANENT, "hidden")


def _late_rename_and_another_schema(stage: TwinStage) -> None:
    """The rename's client gave up, the request is still on its way, and the dataset has another place since."""

    def strike(process: Process, call: PortCall, perform: Callable[[], Any]) -> Any:
        if call.method == "rename" and not stage.late:
            return struck(stage, process, call, perform, Fault.LATE)
        return stage.faults.plainly(call, perform)

    kept, stage.strike = stage.strike, strike
    stage.attempt()
    stage.strike = kept
    stage.plane.datasets[DATASET].schema_id = "t"


def _broken(stage: TwinStage) -> None:
    """A data file of the table is gone, whichever name it is read through."""
    stage.catalog.broken[stage.catalog.names[stage.old]] = SoakFault.DAMAGED


def _broken_at_last(stage: TwinStage) -> None:
    """The same, and one attempt is left."""
    _broken(stage)
    stage.row.attempts = stage.policy.max_attempts - 1


def _killed_at_last(stage: TwinStage) -> None:
    """The last attempt was killed after it had registered the new name."""
    stage.row.attempts = stage.policy.max_attempts - 1
    dies_at(stage, "soak")


def _left_name_taken(stage: TwinStage) -> None:
    """After the flip another hand drops the pointer that was left, and makes a table of its own under that name."""
    stage.attempt()
    del stage.catalog.names[stage.old]
    assert stage.another_hand_creates(stage.old)


def _quarantine_taken(stage: TwinStage) -> None:
    """Another table stands under the very name in quarantine that the next withdrawal will use."""
    stage.attempt()
    shelter = quarantine_identifier(stage.name, len(stage.plane.pointers) + 1)
    stage.catalog.make_namespaces(shelter.namespace)
    assert stage.another_hand_creates(shelter)


def _left_name_taken_in_the_fence(stage: TwinStage) -> None:
    """The left name was written to, then fenced; the worker died there, and another table took the left name."""
    stage.attempt()
    stage.writer_commits()
    stage.engine_commits(stage.old)
    assert stage.pass_time_until_due()
    dies_at(stage, "rename", after=True)
    assert stage.another_hand_creates(stage.old)


def _hidden(stage: TwinStage) -> None:
    """The catalog does not show the place's name, though it takes it."""
    stage.catalog.hidden.add(NEW)


def _renamed_to_a_hidden_name(stage: TwinStage) -> None:
    dies_at(stage, "rename", after=True)
    _hidden(stage)


def _adopted(stage: TwinStage) -> None:
    _another_hand(stage)
    stage.plane.datasets[DATASET].iceberg_namespace = ".".join(NEW.namespace)
    stage.plane.log[DATASET][0].identifier = str(NEW)


def _another_hand(stage: TwinStage) -> None:
    stage.catalog.hold(NEW, stage.catalog.names[OLD])


REGISTER, RENAME = Strategy.REGISTER, Strategy.RENAME
SCENES: Final = (
    Scene("register", REGISTER),
    Scene("register, found out"),
    Scene("register, where nothing can be renamed", REGISTER, offers_rename=False),
    Scene("register over a stale registration", REGISTER, _stale_registration),
    Scene("register over a stale one where nothing can be renamed", REGISTER, _stale_registration, offers_rename=False),
    Scene("the new name is ahead", REGISTER, _ahead),
    Scene("register after the schema changed", REGISTER, _another_schema),
    Scene("decided for the new side", REGISTER, lambda stage: _decided(stage, keep_new=True)),
    Scene("decided for the old side", REGISTER, lambda stage: _decided(stage, keep_new=False)),
    Scene("decided for the old side beside an earlier target", REGISTER, lambda stage: _stray(stage, keep_new=False)),
    Scene("decided for an earlier target", REGISTER, lambda stage: _stray(stage, keep_new=True)),
    Scene("decided for a target that was not planned", REGISTER, _changed_since_planned),
    Scene("decided after the flip, beside an earlier target", REGISTER, _stray_after_the_flip),
    Scene(
        "another hand has set the live name back",
        REGISTER,
        _set_back,
        ends=State.PARKED,
        without=frozenset({Fault.STALE}),  # an answer from before that would hide what the other hand did
    ),
    Scene("the schema is gone", REGISTER, _no_schema, ends=State.PARKED),
    Scene("another hand has set the column", REGISTER, _adopted),
    Scene("the old metadata file was cleaned up", REGISTER, _cleaned_up),
    Scene("register where a table has one name only", REGISTER, once=True, ends=State.PARKED, calls=30),
    Scene("rename", RENAME),
    Scene("rename, found out", once=True),
    Scene("rename over a registration by another hand", RENAME, _another_hand),
    Scene("an open rename", RENAME, lambda stage: dies_at(stage, "rename", after=True), once=True),
    Scene("an open rename after the schema changed", RENAME, _renamed_and_another_schema, once=True),
    Scene("rename to a hidden name", RENAME, _hidden, once=True, ends=State.PARKED),
    Scene("an open rename to a hidden name", RENAME, _renamed_to_a_hidden_name, once=True, ends=State.PARKED),
    Scene("the old name was written to after the flip", REGISTER, _written_to_after, ends=State.PARKED),
    Scene("left in quarantine", REGISTER, lambda s: _left_in_quarantine(s, free_again=False), ends=State.PARKED),
    Scene("back from quarantine", REGISTER, lambda s: _left_in_quarantine(s, free_again=True), ends=State.PARKED),
    Scene("another table has the name", REGISTER, _taken, ends=State.PARKED),
    Scene("another table has the name to be renamed to", RENAME, _taken, ends=State.PARKED),
    Scene("another table has taken the name of an open rename", RENAME, _taken_after_an_open_rename, ends=State.PARKED),
    Scene("a late rename after the schema changed", RENAME, _late_rename_and_another_schema, once=True, window=10.0),
    Scene("back in the grace, the place hidden", REGISTER, _reverted_while_hidden, ends=State.PARKED, calls=12),
    Scene("back by register", REGISTER, _reverted),
    Scene("back by register in the grace", REGISTER, _reverted_in_grace),
    Scene("back by rename", RENAME, _reverted, once=True),
    *(
        Scene(f"{what}{where}", REGISTER, prepare, offers_rename=offers, ends=State.PARKED, last_attempt=True)
        for what, prepare in (
            ("a data file is gone", _broken_at_last),
            ("the last attempt was killed", _killed_at_last),
        )
        for where, offers in (("", True), (", where nothing can be renamed", False))
    ),
    Scene("a data file is gone", REGISTER, _broken, ends=State.PARKED, calls=30),
    Scene("a data file is gone, by rename", RENAME, _broken, ends=State.PARKED, calls=12),
    Scene("another table has the name that was left", REGISTER, _left_name_taken, ends=State.PARKED),
    Scene("another table is in quarantine", REGISTER, _quarantine_taken, ends=State.PARKED),
    Scene(
        "another table has the name of a pointer in quarantine",
        REGISTER,
        _left_name_taken_in_the_fence,
        ends=State.PARKED,
    ),
    Scene("register, every request slow", REGISTER, request_seconds=4.0),
    Scene("rename, every request slow", RENAME, request_seconds=4.0, window=8.0),
)
