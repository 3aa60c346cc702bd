"""Table metadata: new, and with updates applied. What pyiceberg can do, it does."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import update_table_metadata

if TYPE_CHECKING:
    import uuid

Document = dict[str, Any]
_VERSION: Final = re.compile(r"(\d+)-[^/]*$")
_DELETES: Final = "write.metadata.delete-after-commit.enabled"
_NOBODY: Final = {"namespace": ["n"], "name": "t"}
"""Pyiceberg's request names its table; ours may leave it out, the path says it."""


class RequirementError(Exception):
    """The table is not in the state that a commit requires."""


def new_document(request: Document, location: str, properties: dict[str, str], table_uuid: uuid.UUID) -> Document:
    """The metadata of a new table, from the body of the request that creates it."""
    spec, order = request.get("partition-spec"), request.get("write-order")
    metadata = new_table_metadata(
        schema=Schema.model_validate(request["schema"]),
        partition_spec=PartitionSpec.model_validate(spec or {"spec-id": 0, "fields": []}),
        sort_order=SortOrder.model_validate(order or {"order-id": 0, "fields": []}),
        location=location,
        properties=properties,
        table_uuid=table_uuid,
    )
    return _document(metadata)


def updated_document(current: Document | None, location: str | None, request: Document) -> Document:
    """The metadata after a commit; ``current`` is None where the table comes to be with it.

    Raises RequirementError.
    """
    commit = CommitTableRequest.model_validate({"identifier": _NOBODY, **request})
    base = None if current is None else TableMetadataUtil.parse_obj(current)
    for requirement in commit.requirements:
        try:
            requirement.validate(base)
        except CommitFailedException as failure:
            raise RequirementError(str(failure)) from failure
    started = base if base is not None else MetastoreCatalog._empty_table_metadata()
    updated = update_table_metadata(
        started, commit.updates, enforce_validation=current is None, metadata_location=location
    )
    return _document(updated)


def cleaned_up(before: Document, after: Document) -> set[str]:
    """The metadata files that a commit removes, where the table's properties say so."""
    if str(after.get("properties", {}).get(_DELETES, "false")).lower() != "true":
        return set()
    return _log(before) - _log(after)


def next_version(metadata_location: str | None) -> int:
    """The number of the metadata file that follows."""
    found = _VERSION.search((metadata_location or "").rpartition("/")[2])
    return 0 if found is None else int(found.group(1)) + 1


def _log(document: Document) -> set[str]:
    return {entry["metadata-file"] for entry in document.get("metadata-log", ())}


def _document(metadata: TableMetadata) -> Document:
    document: Document = json.loads(metadata.model_dump_json(exclude_none=True))
    return document
