"""Outages: a whole system that does not answer for a while, whatever it is asked.

Responsible for: the kinds, and the error that a call of the catalog's port meets in each.
Must not know: when an outage begins and ends.

An outage differs from a fault: a fault strikes one call, an outage every call until it is over, however many attempts
are made meanwhile.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from urllib3.exceptions import NewConnectionError

from tests.support.faults import CALLS, CHANGES
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind, SoakError, SoakFault
from worker.lakehouse.rest_answers import Answer
from worker.lakehouse.rest_errors import error_for, silence_error

if TYPE_CHECKING:
    from tests.support.faults import PortCall


class Outage(StrEnum):
    """What is away."""

    REFUSED = "the catalog refuses connections"
    UNAVAILABLE = "the catalog answers 503"
    MAINTENANCE = "the catalog answers 503 to changes, reads go on"
    THROTTLED = "the catalog answers 429"
    LOCKED_OUT = "the catalog answers 401"
    STORAGE = "storage does not answer"


_ANSWERS: Final = {
    Outage.UNAVAILABLE: (Answer(503, "", "no healthy upstream"), None),
    Outage.MAINTENANCE: (Answer(503, "MaintenanceModeError", "read-only maintenance", is_json=True), 60.0),
    Outage.THROTTLED: (Answer(429, "", "too many requests"), 30.0),
    Outage.LOCKED_OUT: (Answer(401, "NotAuthorizedException", "the token is not accepted", is_json=True), None),
}


def refusal(outage: Outage, call: PortCall) -> CatalogError | SoakError | None:
    """The error that this call of the catalog meets; None where the outage does not touch it."""
    if call.method not in CALLS:
        if outage is not Outage.STORAGE:
            return None
        if call.method == "soak":
            return SoakError(SoakFault.OUTAGE, "the metadata file cannot be read: connection refused")
        return CatalogError(ErrorCode.STORAGE_AWAY, ErrorKind.TRANSIENT, "the file cannot be read: connection refused")
    if outage is Outage.STORAGE or (outage is Outage.MAINTENANCE and call.method not in CHANGES):
        return None
    about = " ".join(map(str, call.arguments))
    if outage is Outage.REFUSED:
        refused = NewConnectionError(None, "connection refused")  # type: ignore[arg-type]
        return silence_error(CALLS[call.method], refused, about=about)
    answer, retry_after = _ANSWERS[outage]
    return error_for(CALLS[call.method], answer, about=about, retry_after=retry_after)
