"""Why a file could not be read: one table for what storage clients and decoders raise.

Responsible for: (exception, shape of its text) → fault, and that nothing but our own errors leaves a reader.
Must not know: which file it is, what is in it.

Paths and contents are written by tenants, so that any exception is possible; the last row is for all of them.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from worker.lakehouse.cleaning import cleaned, told
from worker.lakehouse.port import SoakError, SoakFault

if TYPE_CHECKING:
    from collections.abc import Iterator


class ReadError(Exception):
    """A file that could not be read. ``why`` completes a sentence that begins with the file; it is cleaned."""

    def __init__(self, fault: SoakFault, why: str) -> None:
        self.why = cleaned(why)
        super().__init__(self.why)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``sign`` is a regular expression that the exception's type and text must contain."""

    exceptions: tuple[type[BaseException], ...]
    fault: SoakFault
    sign: str = ""
    text: str = ""
    """What a person reads; empty: what the exception says."""


ROWS: Final = (
    Row((FileNotFoundError,), SoakFault.MISSING, text="is not in storage"),
    # pyarrow and botocore give a broken connection, a throttle or a 5xx of an object store no type of its own.
    Row((TimeoutError, ConnectionError), SoakFault.OUTAGE),
    Row(
        (Exception,),
        SoakFault.OUTAGE,
        r"NETWORK_CONNECTION|SERVICE_UNAVAILABLE|SLOW_?DOWN|THROTTL|INTERNAL_FAILURE|REQUEST_TIMEOUT|timed? ?out"
        r"|HTTP status(?: code)?:? (?:429|5\d\d)|\b50[0234] |connection (?:refused|reset|closed|broken|error)"
        r"|could ?n[o']t (?:connect|resolve)|EndpointConnection|ConnectTimeout|ReadTimeout|ConnectionClosed"
        r"|Input/output error|Stale file handle|Transport endpoint",
    ),
    Row((PermissionError,), SoakFault.REFUSED),
    Row(
        (Exception,),
        SoakFault.REFUSED,
        r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY|InvalidAccessKey|SIGNATURE|EXPIRED_?TOKEN|INVALID_?TOKEN"
        r"|MISSING_AUTH|UNRECOGNIZED_CLIENT|Forbidden|Unauthorized|HTTP status(?: code)?:? 40[13]|AuthenticationFailed",
    ),
    # What other readers may read: pyarrow accepts neither an empty level in a key nor a map whose keys are optional.
    Row(
        (Exception,),
        SoakFault.UNSUPPORTED,
        r"Empty path component|Path cannot start with a separator|Unrecognized filesystem|Unable to load lib"
        r"|Map keys must be annotated as required|encrypted|decrypt|not (?:yet )?(?:implemented|supported)|unsupported"
        r"|Support for codec",
    ),
    Row((NotImplementedError, ImportError), SoakFault.UNSUPPORTED),
    Row((Exception,), SoakFault.DAMAGED),
)


def read_error(failure: Exception) -> ReadError:
    """The error for whatever a storage client or a decoder raised; one that is ours already stays."""
    if isinstance(failure, ReadError):
        return failure
    said = told(failure)
    row = next(row for row in ROWS if isinstance(failure, row.exceptions) and re.search(row.sign, said, re.IGNORECASE))
    return ReadError(row.fault, row.text or f"cannot be read: {said}")


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Let nothing but SoakError leave; ``what`` names the file. Raises SoakError."""
    try:
        yield
    except SoakError:
        raise
    except Exception as failure:
        error = read_error(failure)
        raise SoakError(error.fault, f"{what} {error.why}") from failure
