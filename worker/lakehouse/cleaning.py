"""The one place that takes secrets out of texts: of what servers, databases and object stores say.

Responsible for: what looks like a credential, and one line of bearable length.
Must not know: where the text came from, where it goes.

Every error of ``worker.lakehouse.port`` cleans its own text, so that no way of making one can forget it.
"""

from __future__ import annotations

import re
from typing import Final

_LONGEST_MESSAGE: Final = 300
_VALUE: Final = r"""(?:"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|\\+["'][^"']*|[^&\s]+)"""
"""In quotes, also those of JSON within JSON, also without the closing one where a text was cut; or up to a space."""
_SURE: Final = r"secret|passw(?:or)?d|passphrase|\bpwd|(?:api|access|account|private)[-_]?key"
_PERHAPS: Final = r"token|signature|credential"
"""Names of secrets that also stand before a colon in plain speech: "invalid token: expired"."""
_TAIL: Final = r"""[\w.-]{0,40}"""
_SECRET: Final = re.compile(
    rf"""(
        # A server that shows the header as it came. It may be of any scheme, so the rest of the line goes.
        \bauthorization[\\"']*\s?[:=]\s?[\\"']*(?=[^\s"'\\])
    )[^"'\\]+
    |(\b(?:bearer|basic)\s+)[^\s"',;)]+
    # A password in an address; in one of HTTP also a name alone, which may be a token. abfss://container@host is none.
    |(://[^\s/:@]*:)[^\s/]*(?=@)
    |(https?://)[^\s/:@]+(?=@)
    # In queries, connection strings and properties; sig is a SAS of Azure's.
    |((?:{_SURE}|{_PERHAPS}|(?<![\w-])sig){_TAIL}[\\"']*\s?=\s?){_VALUE}
    # In JSON, in Python's or Java's words for a mapping, or in YAML.
    |((?:{_SURE}){_TAIL}(?<!exception)(?<!error)[\\"']*:\s?){_VALUE}
    |((?:{_SURE}|{_PERHAPS}|(?<![\w-])sig){_TAIL}[\\"']+\s?:\s?){_VALUE}
    |((?<=[-_.])(?:{_PERHAPS}):\s?){_VALUE}
    # XML, as an object store writes of a request that it refuses.
    |(<(?:[\w:]*)(?:{_SURE}|{_PERHAPS}|stringtosign|canonicalrequest|signedheaders)\w*>)[^<]+
    # A JWT, whatever stands before it.
    |\beyJ[\w-]{{8,}}\.[\w.-]+
    """,
    re.IGNORECASE | re.VERBOSE,
)


def cleaned(text: str) -> str:
    """The text without anything that looks like a credential."""
    return _SECRET.sub(lambda found: (found[found.lastindex] if found.lastindex else "") + "***", text)


def one_line(message: str) -> str:
    """A foreign message on one line, cleaned and of bearable length."""
    line = cleaned(" ".join(message.split()))
    return line if len(line) <= _LONGEST_MESSAGE else line[: _LONGEST_MESSAGE - 1] + "…"


def told(error: BaseException) -> str:
    """A foreign exception on one line: its type, and the first line of its text."""
    lines = str(error).strip().splitlines()
    return one_line(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)
