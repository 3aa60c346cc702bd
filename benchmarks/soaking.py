"""The soak of a large table: the benchmark ``soak``.

Responsible for: a table of 20 data files of 46 MB, what its soak opens and reads, and beside it the obvious
alternative: pyiceberg's scan of one row.
Must not know: what a soak checks.
"""

from __future__ import annotations

import os
import time
from statistics import median
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.report import table
from worker.identifiers import TableIdentifier
from worker.lakehouse import metadata
from worker.lakehouse.soak import soak
from worker.lakehouse.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

FILES: Final = 20
COLUMNS: Final = 8
ROWS: Final = 718_750
"""Eight incompressible columns of eight bytes: 46 MB a file."""

_TIMES: Final = 20


def measure_soak(folder: Path) -> str:
    """Opens, bytes and milliseconds. Markdown."""
    large = _large_table(folder)
    size = large.current_snapshot()
    assert size is not None
    assert size.summary is not None
    opens, read, milliseconds = _soaked(large)
    began = time.perf_counter()
    large.scan(limit=1).to_arrow()
    scanned = (time.perf_counter() - began) * 1000
    total = int(size.summary["total-files-size"] or 0) / 1e6
    return table(
        (f"{FILES} files, {total:.0f} MB", "opens", "MB read", "ms, first", "ms, median"),
        [
            ("soak", str(opens), f"{read / 1e6:.3f}", f"{milliseconds[0]:.1f}", f"{median(milliseconds):.1f}"),
            ("pyiceberg `scan(limit=1)`, for comparison", "", "", f"{scanned:.0f}", ""),
        ],
    )


def _soaked(large: Table) -> tuple[int, int, list[float]]:
    with large.io.new_input(large.metadata_location).open() as stream:
        document = metadata.decode(stream.read())
    loaded = metadata.table_from(TableIdentifier(("large",), "table"), large.metadata_location, document, {})
    storage = Storage({})
    milliseconds = []
    for _ in range(_TIMES):
        storage.opens = storage.bytes_read = 0
        began = time.perf_counter()
        soak(loaded, storage)
        milliseconds.append((time.perf_counter() - began) * 1000)
    return storage.opens, storage.bytes_read, milliseconds


def _large_table(folder: Path) -> Table:
    """One file is written, and linked nineteen times: every one of them is opened under a name of its own."""
    folder.mkdir(parents=True)
    catalog = SqlCatalog("large", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("large")
    rows = _random_rows()
    first = folder / "data-00.parquet"
    pq.write_table(rows, first, use_dictionary=False, compression="zstd")
    names = [first, *(folder / f"data-{number:02}.parquet" for number in range(1, FILES))]
    for name in names[1:]:
        os.link(first, name)
    large = catalog.create_table("large.table", rows.schema)
    large.add_files([f"file://{name}" for name in names])
    return large


def _random_rows() -> pa.Table:
    columns = [
        pa.Array.from_buffers(pa.int64(), ROWS, [None, pa.py_buffer(os.urandom(8 * ROWS))]) for _ in range(COLUMNS)
    ]
    return pa.table(columns, names=[f"column_{number}" for number in range(COLUMNS)])
