"""What a catalog may be unable to do by its nature, and which of them are.

A contract test that needs one of these says so. On a catalog that lacks it the test is run and must fail, for the
reason that stands here: nothing is skipped, and a lack that is mended shows.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import pytest

MARKER: Final = "needs"


class Capability(StrEnum):
    """What some catalogs cannot do."""

    SECOND_NAME = "two names can lead to one table"
    FREE_PLACE = "a table's files may lie outside the folder of its namespace"
    PLAIN_YES = "what was done is answered with a success"
    NAMESPACE_FIRST = "no table stands in a namespace that was not made"
    WHOLE_LISTING = "a listing names every level of a namespace"
    FILE_NEEDED = "a load says that the metadata file is gone"
    HISTORY = "a load tells the earlier metadata files and snapshots"
    ABSENCE_LISTED = "a listing says that the namespace is not there"
    ANY_NAME = "a table's name may hold any character that a path can"
    TAKEN_SAID = "a rename to a taken name says that the name is taken"


def needs(*capabilities: Capability) -> pytest.MarkDecorator:
    """Mark a test, or a class of tests, with what it needs of a catalog."""
    return getattr(pytest.mark, MARKER)(*capabilities)  # type: ignore[no-any-return]


_ONE_NAME: Final = "Lakekeeper keeps one name for each uuid, and answers a second with the 409 of a taken name"
_OWN_ROWS: Final = "Lakekeeper answers from its database, and does not notice that the file is gone"

_NO_DOTS: Final = "Gravitino with authorization cannot load a table whose name has a dot"
_CACHED: Final = "Gravitino 1.3 keeps metadata in a cache, and does not notice that the file is gone"

LACKS: Final[dict[str, dict[Capability, str]]] = {
    "lakekeeper-0.13.3": {
        Capability.SECOND_NAME: _ONE_NAME,
        Capability.FILE_NEEDED: _OWN_ROWS,
        Capability.TAKEN_SAID: "Lakekeeper up to 0.13.3 answers a taken target like a missing source: 404",
    },
    "lakekeeper-main": {Capability.SECOND_NAME: _ONE_NAME, Capability.FILE_NEEDED: _OWN_ROWS},
    "gravitino-1.2-authorization": {
        Capability.PLAIN_YES: "Gravitino 1.2 with authorization registers below one level, then answers 500",
        Capability.NAMESPACE_FIRST: "Gravitino 1.2 makes a missing namespace along with the table",
        Capability.WHOLE_LISTING: "Gravitino 1.2 with authorization lists the first level alone",
        Capability.ANY_NAME: _NO_DOTS,
    },
    "gravitino-1.3": {Capability.FILE_NEEDED: _CACHED},
    "gravitino-1.3-authorization": {Capability.FILE_NEEDED: _CACHED, Capability.ANY_NAME: _NO_DOTS},
    "gravitino-1.2": {
        Capability.NAMESPACE_FIRST: "Gravitino 1.2 makes a missing namespace along with the table",
    },
    "nessie-0.99.0": {
        Capability.HISTORY: "Nessie keeps the history in its own commits, and shows the current snapshot alone",
        Capability.FILE_NEEDED: "Nessie answers from its database, and does not notice that the file is gone",
        Capability.ABSENCE_LISTED: "Nessie lists a namespace that is not there as empty",
        Capability.ANY_NAME: "Nessie reads @ and # in a name as a branch and a time",
    },
    "polaris": {
        Capability.FREE_PLACE: "Polaris refuses a location outside the namespace's own with a 403",
    },
}

NAMED_KINDS: Final = (*LACKS, "reference", "other")
"""What a server may be said to be that the environment names; of ``other`` nothing is expected to be lacking."""
