"""What the proxy does to requests in each of the catalog's disasters.

Responsible for: the rules. Must not know: when they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.chaos.plan import Disaster
from tests.support.fault_proxy import Fault, Rule, delay, hang_up, lie, refuse, stale, twice
from tests.support.rest_double.routes import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHANGES: Final = (Kind.REGISTER, Kind.RENAME, Kind.DROP, Kind.CREATE_NAMESPACE)
_NO_NAMESPACE: Final = "NoSuchNamespaceException"


def _always(kind: Kind | None, fault: Fault, rate: float) -> Rule:
    return Rule(kind, fault, times=None, rate=rate)


def _changes(*faults: Fault, rate: float) -> list[Rule]:
    return [_always(kind, fault, rate) for fault in faults for kind in _CHANGES]


RULES: Final[Mapping[Disaster, list[Rule]]] = {
    Disaster.AWAY: [_always(None, refuse(503), 1.0)],
    Disaster.SLOW: [
        # The time limit of a request is 3 s: some of what is sent takes effect after its sender has given up.
        *_changes(delay(4.0), delay(4.0, after=True), rate=0.15),
        _always(Kind.LOAD, delay(4.0), 0.05),
        _always(None, delay(0.3), 0.7),
    ],
    Disaster.THROTTLED: [_always(None, refuse(429, retry_after="2"), 0.3)],
    Disaster.REFUSED_BEFORE: _changes(refuse(500), refuse(502), refuse(504), rate=0.3),
    Disaster.REFUSED_AFTER: _changes(
        refuse(500, after=True), refuse(502, after=True), refuse(504, after=True), rate=0.3
    ),
    Disaster.DROPPED_BEFORE: _changes(hang_up(), rate=0.6),
    Disaster.DROPPED_AFTER: _changes(hang_up(after=True), rate=0.6),
    Disaster.FALSE_TAKEN: _changes(lie(409), lie(409, after=True), rate=0.4),
    Disaster.FALSE_GONE: [
        _always(Kind.LOAD, lie(404), 0.3),
        *(_always(kind, lie(404, after=after), 0.3) for kind in (Kind.RENAME, Kind.DROP) for after in (False, True)),
        *(_always(Kind.REGISTER, lie(404, _NO_NAMESPACE, after=after), 0.3) for after in (False, True)),
        _always(Kind.GET_NAMESPACE, lie(404, _NO_NAMESPACE), 0.3),
    ],
    Disaster.REPEATED: _changes(twice(), rate=0.8),
    Disaster.STALE: [_always(Kind.LOAD, stale(), 0.5)],
}
