"""A REST catalog whose tables lie in an object store, and which hands out a credential for each table's own folder.

The catalog is the double; its own way to the files is the store's administrator's. A load that asks for it brings a
fresh credential, whatever its name: one that opens the table's folder and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tests.support.rest_double import Kind, RestDouble
from tests.support.rest_double.files import Files
from tests.support.rest_double.routes import route_of

if TYPE_CHECKING:
    from tests.support.object_store import Key, ObjectStore
    from tests.support.rest_double.wire import Answer, Request

DELEGATION: Final = "x-iceberg-access-delegation"


class StoredFiles(Files):
    """The double's files, in the store."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__()
        self._store = store
        self._client = store.client()

    def read(self, location: str) -> bytes:
        """The content of a metadata file."""
        try:
            content: bytes = self._client.get_object(**self._at(location))["Body"].read()
        except self._client.exceptions.NoSuchKey:
            raise FileNotFoundError(location) from None
        return content

    def exists(self, location: str) -> bool:
        """Whether there is such a file."""
        return self._key(location) in self._store.objects(self._key(location))

    def write(self, location: str, content: bytes) -> None:
        """Write a metadata file."""
        self._client.put_object(**self._at(location), Body=content)

    def remove(self, location: str) -> None:
        """Remove one file."""
        self._client.delete_object(**self._at(location))

    def any_under(self, location: str) -> bool:
        """Whether there is a file under a location."""
        return bool(self._store.objects(self._key(location).rstrip("/") + "/"))

    def _key(self, location: str) -> str:
        return location.removeprefix(self._store.root + "/")

    def _at(self, location: str) -> dict[str, str]:
        return {"Bucket": self._store.bucket, "Key": self._key(location)}


@dataclass
class VendingCatalog(RestDouble):
    """``VendingCatalog.over(store)``; ``handed_out`` are the credentials so far."""

    store: ObjectStore = field(kw_only=True)
    folder: str | None = None
    """What credentials open instead of the table's own folder."""
    silent: bool = False
    """Nothing is handed out at all."""
    in_config: bool = False
    """Handed out in the table's config, as before there were credentials by prefix."""
    handed_out: list[Key] = field(default_factory=list)

    @classmethod
    def over(cls, store: ObjectStore) -> VendingCatalog:
        """A catalog whose files lie in the store."""
        return cls(files=StoredFiles(store), store=store)

    def answer(self, request: Request) -> Answer:
        """The double's answer, and with a load what it was asked to bring."""
        answer = super().answer(request)
        kind = route_of(request.method, request.target).kind
        asked = kind in {Kind.LOAD, Kind.CREATE} and DELEGATION in request.headers
        if answer.status != 200 or not asked or self.silent:
            return answer
        shown = json.loads(answer.body)
        where = str(self.folder or shown["metadata"]["location"])
        key = self.store.credential(where)
        self.handed_out.append(key)
        options = self.store.options(key)
        shown["config"] = options if self.in_config else {}
        shown["storage-credentials"] = [] if self.in_config else [{"prefix": where, "config": options}]
        return replace(answer, body=json.dumps(shown).encode())
