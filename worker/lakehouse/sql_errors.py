"""What the errors of pyiceberg's SqlCatalog mean: one table.

Responsible for: pyiceberg's, SQLAlchemy's and the drivers' exceptions → (code, kind).
Must not know: which statement was run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from worker.lakehouse.cleaning import one_line
from worker.lakehouse.port import CatalogError, ErrorCode, ErrorKind

_TRANSIENT, _PERMANENT, _UNKNOWN = ErrorKind.TRANSIENT, ErrorKind.PERMANENT, ErrorKind.UNKNOWN


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; ``sign`` is a regular expression that the text must contain."""

    exceptions: tuple[type[Exception], ...]
    code: ErrorCode
    kind: ErrorKind
    sign: str = ""
    text: str = ""
    """What a person reads; empty: what the database said."""


ROWS: Final = (
    Row((NoSuchTableError,), ErrorCode.TABLE_MISSING, _PERMANENT),
    Row((NoSuchNamespaceError,), ErrorCode.NAMESPACE_MISSING, _PERMANENT),
    Row((TableAlreadyExistsError, NamespaceAlreadyExistsError), ErrorCode.ALREADY_EXISTS, _PERMANENT),
    # The loser of a race for a namespace; pyiceberg turns the same into its own error for tables only.
    Row((IntegrityError,), ErrorCode.ALREADY_EXISTS, _PERMANENT, text="somebody else was faster"),
    # Names longer than 255 and locations longer than 1,000 characters.
    Row((DataError,), ErrorCode.INVALID, _PERMANENT),
    # Psycopg: no connection, no statement.
    Row((OperationalError,), ErrorCode.UNAVAILABLE, _TRANSIENT, r"connection failed|connection timeout expired"),
    Row((OperationalError,), ErrorCode.UNAVAILABLE, _TRANSIENT, r"unable to open database file"),
    # Taken back by the database itself: a deadlock, a lock or statement timeout; SQLite's one writer.
    Row((OperationalError,), ErrorCode.UNCLEAR, _TRANSIENT, r"database is locked|deadlock detected|timeout"),
    # The connection broke, perhaps between a commit and its answer.
    Row((OperationalError, InterfaceError), ErrorCode.UNCLEAR, _UNKNOWN),
    Row((PoolTimeoutError,), ErrorCode.UNAVAILABLE, _TRANSIENT, text="no connection became free in time"),
    Row((ProgrammingError,), ErrorCode.FORBIDDEN, _PERMANENT, r"permission denied"),
    Row((ProgrammingError,), ErrorCode.INVALID, _PERMANENT),
    # An address that is no URL, or of a database whose driver is not installed. The text could hold a password.
    Row((ArgumentError, NoSuchModuleError), ErrorCode.INVALID, _PERMANENT, text="it is no known database's URL"),
    Row((SQLAlchemyError,), ErrorCode.UNCLEAR, _UNKNOWN),
)

FOREIGN: Final = tuple({exception for row in ROWS for exception in row.exceptions})
"""Everything that is translated; what is not among it is a defect and passes through."""


def sql_error(failure: Exception, about: str) -> CatalogError:
    """The error for a foreign one; ``about`` says what was being done."""
    said = _said(failure)
    row = next(row for row in ROWS if isinstance(failure, row.exceptions) and re.search(row.sign, said, re.IGNORECASE))
    return CatalogError(row.code, row.kind, f"the catalog did not {about}: {row.text or one_line(said)}")


def _said(failure: Exception) -> str:
    # SQLAlchemy's own text repeats the statement and its parameters; the driver's does not.
    driver = getattr(failure, "orig", None) or failure
    return (str(driver).strip().splitlines() or [type(driver).__name__])[0]
