"""What settings must not say: contradictions, misspelt names, secrets where people look.

Responsible for: pure checks over names and values, and how a value is shown without its secret.
Must not know: where the values come from, or what a command needs of them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

PREFIX: Final = "REROOT_"

TEST_PREFIX: Final = "REROOT_TEST_"
"""Variables of the test suite: never settings."""

NEAR: Final = 2
"""Edits between a variable and a setting's name up to which it is taken for a slip of the keys."""

SHORT: Final = 8
"""Names shorter than this allow one edit only: two would turn one word into another."""

MASK: Final = "********"

_SERVICE_LINK: Final = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)$",
)
_SERVICE_ADDRESS: Final = re.compile(r"^(tcp|udp|sctp)://")
_URL_PASSWORD: Final = re.compile(r"(?P<user>[a-z][a-z0-9+.-]*://[^\s/:@]*):(?P<password>[^\s/]*)@", re.IGNORECASE)
_QUERY_SECRET: Final = re.compile(r"(?P<name>[?&](?:[a-z]*pas+w[a-z]*|token|secret)=)[^&\s]+", re.IGNORECASE)

_STRAY_PERCENT: Final = re.compile(r"%(?![0-9a-f]{2})", re.IGNORECASE)
_UNSEEN: Final = re.compile(r"[\x00-\x20\x7f]")
_POSTGRES_HOST: Final = re.compile(r"(?:\[[^\[\]@]+\]|[^\[\]:@]*)(?P<port>:.*)?")
_POSTGRES_PORT: Final = re.compile(r":\d*")

_ENCODE: Final = "percent-encode the password"
_NO_HOST: Final = f"its host cannot be read: {_ENCODE}"
_NO_PORT: Final = f"its port is not a number: {_ENCODE}"


def masked_url(text: str) -> str:
    """``text`` with the password of every URL in it replaced."""
    return _QUERY_SECRET.sub(rf"\g<name>{MASK}", _URL_PASSWORD.sub(rf"\g<user>:{MASK}@", text))


def postgres_url_flaw(url: str) -> str:
    """Why libpq cannot read the address, or nothing. Its own error would quote the password."""
    flaw = _character_flaw(url)
    if flaw:
        return flaw
    # As libpq takes it apart, which is not how urllib does: a password may hold ? and #, and there may be many hosts.
    user, at, behind = url.partition("://")[2].partition("@")
    place = behind if at and "/" not in user else user + at + behind
    for host in re.split(r"[/?]", place, maxsplit=1)[0].split(","):
        found = _POSTGRES_HOST.fullmatch(host)
        if found is None:
            return _NO_HOST
        if not _POSTGRES_PORT.fullmatch(found["port"] or ":"):
            return _NO_PORT
    return ""


def broker_url_flaw(url: str) -> str:
    """Why kombu cannot read the address, or addresses with semicolons between, or nothing."""
    flaws = (_character_flaw(each) or _redis_flaw(each) for each in url.split(";"))
    return next((flaw for flaw in flaws if flaw), "")


def _redis_flaw(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if "+" in scheme:
        return ""  # a socket, whose path is a file's
    try:
        parts = urlsplit(url)
    except ValueError:
        return _NO_HOST
    try:
        _ = parts.port
    except ValueError:
        return _NO_PORT
    if "@" not in parts.netloc and "@" in rest:
        return _NO_HOST
    if not re.fullmatch(r"/*\d*", parts.path):
        return "its path should be the number of a database, such as /0"
    return ""


def _character_flaw(url: str) -> str:
    if _UNSEEN.search(url):
        return f"it holds a space or a control character: {_ENCODE} (a space is %20)"
    if _STRAY_PERCENT.search(url):
        return f"it holds a % without two hex digits behind it: {_ENCODE} (% is %25)"
    return ""


def edits(left: str, right: str, limit: int) -> int:
    """Insertions, deletions, replacements and swaps of neighbours between two words; ``limit + 1`` where more."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        before, last, row = row, before, [i]
        for j, b in enumerate(right, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return min(row[-1], limit + 1)


def nearest(variable: str, known: Iterable[str]) -> str | None:
    """The known variable that ``variable`` is a slip of, or None. The shared prefix counts for nothing."""
    word = variable.upper().removeprefix(PREFIX)
    allowed = 1 if len(word) < SHORT else NEAR
    best = min(((edits(word, name.removeprefix(PREFIX), allowed), name) for name in known), default=(allowed + 1, ""))
    return best[1] if best[0] <= allowed else None


def is_service_link(variable: str, value: str) -> bool:
    """Whether Kubernetes set it: for a service ``reroot-x`` every pod gets ``REROOT_X_SERVICE_HOST`` and more."""
    if _SERVICE_LINK.search(variable):
        return True
    return variable.endswith("_PORT") and _SERVICE_ADDRESS.match(value) is not None


def misspelt(environ: Mapping[str, str], known: frozenset[str]) -> list[str]:
    """A complaint for each variable that looks like a setting but is none. What is unlike every setting passes."""
    complaints = []
    for variable, value in sorted(environ.items()):
        upper = variable.upper()
        if variable in known or not upper.startswith(PREFIX) or upper.startswith(TEST_PREFIX):
            continue
        suggestion = None if is_service_link(variable, value) else nearest(variable, sorted(known))
        if suggestion:
            complaints.append(f"{variable} is not a setting: did you mean {suggestion}?")
    return complaints


def rising(steps: Iterable[tuple[str, float, bool]]) -> list[str]:
    """Complaints where a chain of durations does not rise. Each step: variable, seconds, whether it may be equal."""
    complaints = []
    for (lower_name, lower, _), (upper_name, upper, equal) in pairwise(steps):
        if lower > upper or (lower == upper and not equal):
            relation = "at most" if equal else "less than"
            complaints.append(f"{lower_name} ({lower:g} s) must be {relation} {upper_name} ({upper:g} s)")
    return complaints
