"""Tables that Spark wrote (``tests/data/spark``), every file under its own location; no Spark and no Java is needed."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = Path(__file__).parents[1] / "data" / "spark"
NAMES: Final = sorted(path.stem for path in FOLDER.glob("*.zip"))


@dataclass(frozen=True, slots=True)
class SparkTable:
    """Its current metadata file's location, and the content of every file that this leads to, by location."""

    metadata_location: str
    files: Mapping[str, bytes]


def spark_table(name: str) -> SparkTable:
    """One of ``NAMES``."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as packed:
        files = {f"s3://{file}": packed.read(file) for file in packed.namelist()}
        return SparkTable(packed.comment.decode(), files)
