"""What can go wrong at one call of a port: the process dies, the answer is lost, or it is a lie.

``between`` puts itself between ``worker.moves`` and its ports and hands every call to a ``Handler``; ``Faults.strike``
makes one call fail in one way. What a catalog's answer or silence means is taken from the table of the REST adapter,
so that a 500 or a reset here is what the protocol sees of a real one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from urllib3.exceptions import ProtocolError, ReadTimeoutError

from worker.controlplane.connection import ControlPlaneAwayError
from worker.identifiers import QUARANTINE_NAMESPACE
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.lakehouse.rest_answers import Answer
from worker.lakehouse.rest_errors import Call, error_for, silence_error
from worker.moves.ports import LockLostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.identifiers import TableIdentifier


class Fault(StrEnum):
    """One way to fail. *Before*: nothing was done; *after*: it was done, and the caller does not hear of it."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    LOST_BEFORE = "connection lost before"
    """To the control plane: the lock's connection, or the second one."""
    LOST_AFTER = "connection lost after"
    CUT = "the lock's connection lost meanwhile"
    """Nobody hears of it before the next question to that connection."""
    STATUS_500_BEFORE = "500 before"
    STATUS_500_AFTER = "500 after"
    STATUS_503_BEFORE = "503 before"
    STATUS_503_AFTER = "503 after"
    TIMEOUT_AFTER = "timeout after"
    LATE = "timeout, done later"
    """The request is still on its way when its client has given up."""
    RESET_BEFORE = "reset before"
    RESET_AFTER = "reset after"
    FALSE_409_BEFORE = "false 409, not done"
    FALSE_409_AFTER = "false 409, done"
    FALSE_404_BEFORE = "false 404, not done"
    FALSE_404_AFTER = "404 on a second try, done by the first"
    STALE = "stale read"
    """The answer that this very read had before."""
    SLOW = "as slow as its client allows"
    """It takes effect and is answered just before the client gives up."""
    STALLED = "the process stood still before"
    """For longer than an attempt may take: its lock has been ended meanwhile, where it had one."""


REQUEST_SECONDS: Final = 10.0
"""After which the client of a request gives up."""
STALL_SECONDS: Final = 100.0
SECONDS: Final = {
    Fault.SLOW: REQUEST_SECONDS - 1,
    Fault.TIMEOUT_AFTER: REQUEST_SECONDS,
    Fault.LATE: REQUEST_SECONDS,
    Fault.STALLED: STALL_SECONDS,
}
"""How long a call takes that a fault strikes; 0 for the others."""

CRASHES: Final = frozenset({Fault.CRASH_BEFORE, Fault.CRASH_AFTER})
_LOSSES: Final = frozenset({Fault.LOST_BEFORE, Fault.LOST_AFTER})
_BEFORE_THE_LOCK: Final = frozenset({"ledger.peek", "ledger.take", "ledger.lock", "ledger.note_busy"})
_DONE_FIRST: Final = frozenset(
    {
        Fault.STATUS_500_AFTER,
        Fault.STATUS_503_AFTER,
        Fault.TIMEOUT_AFTER,
        Fault.RESET_AFTER,
        Fault.FALSE_409_AFTER,
        Fault.FALSE_404_AFTER,
    }
)

CALLS: Final = {
    "load": Call.LOAD,
    "register": Call.REGISTER,
    "rename": Call.RENAME,
    "drop": Call.DROP,
    "create_namespace": Call.CREATE_NAMESPACE,
    "namespace_exists": Call.NAMESPACE,
    "list_tables": Call.LIST,
    "view_exists": Call.VIEW,
    "table_exists": Call.EXISTS,
}
"""The calls of the catalog's port that are one request each."""

CHANGES: Final = frozenset({"register", "rename", "drop", "create_namespace"})
_GUARDED: Final = CHANGES - {"create_namespace"}
"""A process does not stand still between its last question to the lock and one of these."""
_ANSWERS: Final = {
    Fault.STATUS_500_BEFORE: Answer(500, "RuntimeException", "boom", is_json=True),
    Fault.STATUS_500_AFTER: Answer(500, "RuntimeException", "boom", is_json=True),
    Fault.STATUS_503_BEFORE: Answer(503, "", "no healthy upstream"),
    Fault.STATUS_503_AFTER: Answer(503, "", "no healthy upstream"),
    Fault.FALSE_409_BEFORE: Answer(409, "AlreadyExistsException", "it exists", is_json=True),
    Fault.FALSE_409_AFTER: Answer(409, "AlreadyExistsException", "it exists", is_json=True),
    Fault.FALSE_404_BEFORE: Answer(404, "NoSuchTableException", "it does not exist", is_json=True),
    Fault.FALSE_404_AFTER: Answer(404, "NoSuchTableException", "it does not exist", is_json=True),
}
_SAYS_NO: Final = frozenset({"namespace_exists", "view_exists", "table_exists"})
"""Reads to which the adapter turns a 404 into a plain no."""
_IN_A_NAMESPACE: Final = frozenset({"create_namespace", "list_tables"})


class Crashed(BaseException):
    """The process is dead: nothing that it would have done afterwards happens."""


@dataclass(frozen=True, slots=True)
class PortCall:
    """One call that an attempt makes."""

    port: str
    """``ledger``, ``lock``, ``lakehouse`` or ``catalog``."""
    method: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.port}.{self.method}"


def faults_of(call: PortCall) -> list[Fault]:
    """Every fault that can strike this call."""
    if call.port == "lakehouse":
        return []
    if call.port == "lock":
        return [*CRASHES, *_LOSSES, Fault.STALLED]
    if call.port == "ledger":
        lost = [Fault.LOST_BEFORE] if str(call) == "ledger.lock" else [*_LOSSES]
        return [*CRASHES, *lost, Fault.STALLED, *([] if str(call) in _BEFORE_THE_LOCK else [Fault.CUT])]
    if call.method in CHANGES:
        never = {*_LOSSES, Fault.STALE, *([Fault.STALLED] if call.method in _GUARDED else [])}
        return [fault for fault in Fault if fault not in never and (fault is not Fault.LATE or _may_be_late(call))]
    reads = [Fault.CRASH_BEFORE, Fault.CUT, Fault.STATUS_500_BEFORE, Fault.STATUS_503_BEFORE, Fault.RESET_BEFORE]
    reads += [Fault.SLOW, Fault.STALLED]
    return [*reads, Fault.FALSE_404_BEFORE, Fault.STALE] if call.method in CALLS else reads


def _may_be_late(call: PortCall) -> bool:
    """A DELETE of a name that is not in quarantine is the one request that does harm when it comes late.

    It is only made where a server cannot rename, and nothing can be done about it.
    """
    return call.method != "drop" or call.arguments[0].namespace == (QUARANTINE_NAMESPACE,)


@dataclass
class Faults:
    """Strikes calls. It remembers what each read answered, for stale ones, whoever read."""

    answers: dict[tuple[str, object], Callable[[], Any]] = field(default_factory=dict)

    def plainly(self, call: PortCall, perform: Callable[[], Any]) -> Any:
        """The call as it is, its answer remembered if it is a read."""
        if call.port != "catalog" or call.method in CHANGES or call.method not in CALLS:
            return perform()
        try:
            answer = list(perform()) if call.method == "list_tables" else perform()
        except CatalogError as error:
            self._remember(call, _raising(error))
            raise
        self._remember(call, lambda: answer)
        return answer

    def _remember(self, call: PortCall, answer: Callable[[], Any]) -> None:
        self.answers[call.method, call.arguments] = answer

    def strike(self, fault: Fault, call: PortCall, perform: Callable[[], Any], lock: Any = None) -> Any:
        """The call with the fault. ``lock``: the attempt's, whose connection a loss of it ends."""
        if fault is Fault.CRASH_BEFORE:
            raise Crashed
        if fault in {Fault.SLOW, Fault.STALLED}:  # the time that passes is its caller's to let pass
            return self.plainly(call, perform)
        if fault is Fault.CRASH_AFTER:
            self.plainly(call, perform)
            raise Crashed
        if fault is Fault.CUT:
            lock.cut()
            return self.plainly(call, perform)
        if fault in _LOSSES:
            return _lose(fault, call, perform, lock)
        if fault is Fault.STALE:
            return self.answers.get((call.method, call.arguments), lambda: self.plainly(call, perform))()
        if fault in _DONE_FIRST:
            _done_quietly(perform)
        if fault is Fault.FALSE_404_BEFORE and call.method in _SAYS_NO:
            return False
        raise _error(fault, call)


def _lose(fault: Fault, call: PortCall, perform: Callable[[], Any], lock: Any) -> Any:
    if fault is Fault.LOST_AFTER:
        perform()
    if call.port == "lock":
        lock.cut()
        raise LockLostError("server closed the connection unexpectedly")
    raise ControlPlaneAwayError("server closed the connection unexpectedly")


def _done_quietly(perform: Callable[[], Any]) -> None:
    try:
        perform()
    except CatalogError:
        return


def _error(fault: Fault, call: PortCall) -> CatalogError:
    about = " ".join(map(str, call.arguments))
    if call.method not in CALLS:
        return CatalogError(ErrorCode.UNCLEAR, ErrorKind.TRANSIENT, "storage did not answer")
    if fault in {Fault.TIMEOUT_AFTER, Fault.LATE}:
        return silence_error(CALLS[call.method], ReadTimeoutError(None, "/", "read timed out"), about=about)  # type: ignore[arg-type]
    if fault in {Fault.RESET_BEFORE, Fault.RESET_AFTER}:
        return silence_error(CALLS[call.method], ProtocolError("connection reset by peer"), about=about)
    answer = _ANSWERS[fault]
    if answer.status == HTTPStatus.NOT_FOUND and call.method in _IN_A_NAMESPACE:
        answer = replace(answer, type="NoSuchNamespaceException")
    return error_for(CALLS[call.method], answer, about=about)


def _raising(error: BaseException) -> Callable[[], Any]:
    def again() -> Any:
        raise error

    return again


Handler = Callable[[PortCall, Callable[[], Any]], Any]
"""Takes every call, and how to make it."""


class Between:
    """A port whose every call goes through a handler. Locks and catalogs that it hands out are between, too."""

    def __init__(self, target: Any, port: str, handler: Handler) -> None:
        self._target, self._port, self._handler = target, port, handler

    def __getattr__(self, method: str) -> Any:
        attribute = getattr(self._target, method)

        def call(*arguments: Any, **keywords: Any) -> Any:
            made = PortCall(self._port, method, arguments)
            if str(made) == "ledger.lock":
                return self._locked(made, lambda: attribute(*arguments, **keywords))
            result = self._handler(made, lambda: attribute(*arguments, **keywords))
            return Between(result, "catalog", self._handler) if str(made) == "lakehouse.catalog" else result

        return call

    @contextmanager
    def _locked(self, made: PortCall, take: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
        entered: list[AbstractContextManager[Any]] = []

        def enter() -> Any:
            entered.append(take())
            return entered[0].__enter__()

        try:
            lock = self._handler(made, enter)
            yield None if lock is None else Between(lock, "lock", self._handler)
        finally:
            for context in entered:
                context.__exit__(None, None, None)


def named(call: PortCall) -> tuple[TableIdentifier, ...]:
    """The names that a call of the catalog is about."""
    return call.arguments if call.method == "rename" else call.arguments[:1]
