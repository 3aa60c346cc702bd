"""One request to a REST catalog, and who may send it again.

Responsible for: timeouts on everything, one keep-alive connection per process and host, the header of who we are, and
the rule that nothing but a GET or a HEAD is ever sent twice.
Must not know: what is asked, what an answer's content means.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import urllib3
from urllib3.exceptions import HTTPError

from worker.lakehouse.auth import authorization, need_scheme
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind
from worker.lakehouse.rest_answers import Answer, carries_error, origin, read_answer
from worker.lakehouse.rest_errors import Call, error_for, silence_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.lakehouse.connection import CatalogConnection

_PAUSES: Final = (0.1, 0.4)
"""Seconds before a GET is sent again; when they are used up the error stands."""
_SHORT: Final = 1.0
"""Seconds of ``Retry-After`` that are waited for here; a longer wait is the caller's business."""
_LONGEST_RETRY_AFTER: Final = 300.0
_READS: Final = frozenset({"GET", "HEAD"})
_AGAIN: Final = frozenset({429, 502, 503, 504})
_NEW_TOKEN: Final = frozenset({401, 419})
_HEADER_PROPERTY: Final = "header."
DELEGATION: Final = "X-Iceberg-Access-Delegation"


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent. ``about`` is what an error's text names; ``target`` is relative to the catalog's address.

    ``vending``: the answer is asked to bring a credential for the table's files.
    """

    call: Call
    method: str
    target: str
    about: str
    body: bytes | None = None
    vending: bool = False


class Session:
    """What one process shares among all warehouses of a catalog: the connections, and who we are.

    Not shared between processes: a socket does not survive a fork.
    """

    def __init__(self, connection: CatalogConnection) -> None:
        self.properties = {name: value.get_secret_value() for name, value in connection.properties.items()}
        self.address = connection.uri.get_secret_value()
        self.seconds = connection.timeout_seconds
        self.warehouse_location = connection.warehouse_location
        self.pool = urllib3.PoolManager(
            num_pools=4,
            maxsize=1,
            timeout=urllib3.Timeout(connect=self.seconds, read=self.seconds),
            ca_certs=self.properties.get("ssl.cabundle"),
        )
        self.authorization = authorization(connection, self.pool)
        further = _further_headers(self.properties)
        self.vends = all(name.lower() != DELEGATION.lower() for name in further)
        """Whether catalogs are asked for credentials here: not where a property of the operator's says how."""
        self.headers = {"User-Agent": "reroot", **{name: value for name, value in further.items() if value}}


class Wire:
    """The requests of one warehouse."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._address = ""
        self._path = ""
        self.answered: int | None = None
        """The status of the last answer; None where the last request got none."""
        self.point_to(session.address)

    def point_to(self, address: str) -> None:
        """Send what follows to ``address``, a catalog's address with or without ``/v1``."""
        self._address = address.rstrip("/").removesuffix("/v1")
        # Not urlsplit: what is no URL is told as an error of the request, like every other.
        self._path = self._address.partition("://")[2].partition("/")[2]

    def send(self, request: Request) -> bytes:
        """The body of a success. Raises CatalogError for everything else."""
        need_scheme(self._address, "the catalog's address")
        pauses = iter(_PAUSES if request.method in _READS else ())
        until = time.monotonic() + self._session.seconds
        renewed = False
        while True:
            try:
                return self._once(request)
            except _AnsweredError as answered:
                error = answered.error
                if answered.status in _NEW_TOKEN and self._session.authorization.refused():
                    # A refused change was not done either, but "sent once" is a rule without a second look.
                    if renewed or request.method not in _READS:
                        raise error from None
                    renewed = True
                    continue
                worth_it = answered.status in _AGAIN and (error.retry_after or 0.0) <= _SHORT
            except CatalogError as silent:
                error, worth_it = silent, silent.code in {ErrorCode.UNAVAILABLE, ErrorCode.UNCLEAR}
            pause = next(pauses, None)
            if pause is None or not worth_it or time.monotonic() + pause >= until:
                raise error from None
            time.sleep(error.retry_after or pause)

    def _once(self, request: Request) -> bytes:
        self.answered = None
        headers = dict(self._session.headers)
        value = self._session.authorization.header()
        if value is not None:
            headers["Authorization"] = value.get_secret_value()
        if request.vending:
            headers[DELEGATION] = "vended-credentials"
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        try:
            response = self._session.pool.connection_from_url(self._address).urlopen(
                request.method,
                f"/{self._path}{request.target}" if self._path else request.target,
                body=request.body,
                headers=headers,
                redirect=False,
                retries=False,
            )
            body: bytes = response.data
            self.answered = response.status
        except (HTTPError, OSError, ValueError) as failure:
            raise silence_error(request.call, failure, about=request.about) from None
        if response.status in {HTTPStatus.OK, HTTPStatus.NO_CONTENT} and not _deceives(body):
            return body
        raise _AnsweredError(response.status, _error(request, response.status, body, response.headers))


class _AnsweredError(Exception):
    """An answer that is not a success, on its way to whoever decides whether to ask again."""

    def __init__(self, status: int, error: CatalogError) -> None:
        super().__init__(str(error))
        self.status = status
        self.error = error


def _deceives(body: bytes) -> bool:
    """Whether a success is none: a login page, or an error with status 200."""
    stripped = body.lstrip()
    return bool(stripped) and (stripped[:1] != b"{" or carries_error(stripped))


def _error(request: Request, status: int, body: bytes, headers: Mapping[str, str]) -> CatalogError:
    answer = read_answer(status, body)
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        there = origin(headers.get("Location", ""))
        answer = Answer(status, message=f"it redirects to {there}, which is not followed")
    elif status < HTTPStatus.MULTIPLE_CHOICES and not answer.is_json:
        answer = Answer(status, message="the body is not a catalog's")
    return error_for(request.call, answer, about=request.about, retry_after=retry_after(headers.get("Retry-After")))


def _further_headers(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(_HEADER_PROPERTY): value
        for name, value in properties.items()
        if name.startswith(_HEADER_PROPERTY)
    }


def retry_after(value: str | None) -> float | None:
    """Seconds that a server asks to wait, given in seconds or as a date; at most five minutes; None for no request."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = ((when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER) if seconds == seconds else None  # noqa: PLR0124 - not a number


def unreadable(call: Call, about: str, why: str) -> CatalogError:
    """The error for a success whose content is not what the specification says."""
    return CatalogError(
        ErrorCode.UNREADABLE, ErrorKind.TRANSIENT, f"the catalog did not {call} {about}: its answer {why}"
    )
