"""Avro files, block by block: fastavro decodes, and no length that a file claims is believed.

Responsible for: the container, the limits of what it may become in memory, and the names that its writer gave to the
fields of the Iceberg specification (names changed between versions and writers, ids did not).
Must not know: what a manifest is.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
from fastavro import parse_schema, schemaless_reader

from worker.lakehouse.port import SoakFault
from worker.lakehouse.reading import ReadError

if TYPE_CHECKING:
    from fastavro.types import Schema

MAGIC: Final = b"Obj\x01"
ENCRYPTED: Final = b"AGS1"
"""How a file starts that Iceberg has encrypted as a whole."""
_SCHEMAS: Final = 64
"""Schema texts that are remembered: a partition spec of a table makes one each."""
_BUFFER: Final = 256 * 1024
_LARGEST_BLOCK: Final = 64 * 1024 * 1024
"""Bytes of one block, decompressed. Writers end a block after 64 KB, or put a whole manifest list into one."""
_SYNC: Final = 16
_PRIMITIVES: Final = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
_COUNTED: Final = frozenset({"array", "map", "enum"})

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fields:
    """The writer's names of a record's fields, by field id; ``inner`` has those of records in it, by the same."""

    names: Mapping[int, str]
    inner: Mapping[int, Fields]

    def name(self, field_id: int) -> str:
        """The name. Raises ReadError where the writer's schema has no such field."""
        if field_id not in self.names:
            raise ReadError(SoakFault.DAMAGED, f"cannot be understood: its schema has no field with the id {field_id}")
        return self.names[field_id]


@dataclass(frozen=True, slots=True)
class _Decoder:
    """How the records of one schema text are decoded."""

    schema: Schema
    """Of a record with an array of them: a block is one, but for the count before it and the zero behind.

    Not of the array itself: fastavro takes a schema for parsed only where it has a name.
    """
    fields: Fields


def _parsed(**parts: Any) -> Schema:
    fields = [{"name": name, "type": kind} for name, kind in parts.items()]
    return parse_schema({"type": "record", "name": "reroot.part", "fields": fields})


def _fixed(name: str, size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


_HEADER: Final = _parsed(
    magic=_fixed("m", len(MAGIC)), meta={"type": "map", "values": "bytes"}, sync=_fixed("s", _SYNC)
)
_BLOCK: Final = _parsed(count="long", data="bytes", sync=_fixed("s", _SYNC))


class AvroFile:
    """An open Avro file. Raises ReadError where it is none."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = _buffered(file)
        start = self._file.read(len(MAGIC))
        if start == ENCRYPTED:
            raise ReadError(SoakFault.UNSUPPORTED, "cannot be read: it is encrypted")
        if start != MAGIC:
            raise ReadError(SoakFault.DAMAGED, "cannot be understood: it is no Avro file")
        self._file.seek(0)
        header: Any = schemaless_reader(self._file, _HEADER, None)
        self._meta: Mapping[str, bytes] = header["meta"]
        self._sync: bytes = header["sync"]

    @property
    def fields(self) -> Fields:
        """The writer's names."""
        return _decoder(self._meta["avro.schema"]).fields

    def records(self) -> Iterator[Record]:
        """Every record, read as far as they are asked for."""
        decoder = _decoder(self._meta["avro.schema"])
        for count, data in self.blocks():
            array = io.BytesIO(_zigzag(count) + data + b"\0")
            block: Any = schemaless_reader(array, decoder.schema, None)
            yield from block["records"]

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """The number of records of each block that has any, and its content decompressed."""
        codec = self._meta.get("avro.codec", b"null").decode()
        if codec not in _CODECS:
            raise ReadError(SoakFault.UNSUPPORTED, f"cannot be read: its compression {codec!r} is not known here")
        while self._file.read(1):
            self._file.seek(-1, io.SEEK_CUR)
            block: Any = schemaless_reader(self._file, _BLOCK, None)
            if block["sync"] != self._sync:
                raise ReadError(SoakFault.DAMAGED, "cannot be understood: a mark between two of its blocks is damaged")
            data = _CODECS[codec](block["data"])
            if len(data) > _LARGEST_BLOCK:
                raise _too_large()
            if not 0 <= block["count"] <= len(data):
                raise ReadError(SoakFault.DAMAGED, "cannot be understood: a block of it has fewer records than it says")
            if block["count"]:
                yield block["count"], data

    def ends_whole(self, file: BinaryIO) -> bool:
        """Whether the file's last bytes are the mark with which every block ends."""
        file.seek(-_SYNC, io.SEEK_END)
        return file.read(_SYNC) == self._sync


def _buffered(file: BinaryIO) -> BinaryIO:
    """The content of a short file, else a buffer over it."""
    content = file.read(_BUFFER)
    if len(content) < _BUFFER:
        return io.BytesIO(content)
    file.seek(0)
    return _Bounded(file, _BUFFER)  # type: ignore[arg-type]  # a RawIOBase, see Storage.open


def _too_large() -> ReadError:
    return ReadError(SoakFault.UNSUPPORTED, f"cannot be read: a block of it has more than {_LARGEST_BLOCK:,} bytes")


class _Bounded(io.BufferedReader):
    """A buffer that allots no more memory than a block may take, whatever length a file claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _LARGEST_BLOCK:
            raise ReadError(SoakFault.DAMAGED, f"cannot be understood: a value in it has the length {size}")
        return super().read(size)


def _zigzag(count: int) -> bytes:
    number, out = count << 1, bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte, the eighth says that more follow
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


@lru_cache(maxsize=_SCHEMAS)
def _decoder(schema: bytes) -> _Decoder:
    record = _plain(msgspec.json.decode(schema))
    return _Decoder(_parsed(records={"type": "array", "items": record}), _fields(record))


def _plain(schema: Any) -> Any:
    """The schema without logical types: a date of the year 10000 is a number here, and no error.

    Nothing that takes no bytes may be repeated: of that a few bytes could claim any number.
    """
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if "items" in schema and not _takes_bytes(schema["items"]):
        raise ReadError(SoakFault.UNSUPPORTED, "cannot be read: its schema repeats what takes no bytes")
    return {key: _plain(value) for key, value in schema.items() if key != "logicalType"}


def _takes_bytes(schema: Any) -> bool:
    if isinstance(schema, dict):
        kind = schema["type"]
        if kind == "record":
            return any(_takes_bytes(field["type"]) for field in schema["fields"])
        return kind in _COUNTED or (bool(schema["size"]) if kind == "fixed" else _takes_bytes(kind))
    return isinstance(schema, list) or schema in _PRIMITIVES


def _fields(schema: Any) -> Fields:
    names: dict[int, str] = {}
    inner: dict[int, Fields] = {}
    for field in schema["fields"]:
        if "field-id" in field:
            names[field["field-id"]] = field["name"]
            for kind in field["type"] if isinstance(field["type"], list) else [field["type"]]:
                if isinstance(kind, dict) and kind.get("type") == "record":
                    inner[field["field-id"]] = _fields(kind)
    return Fields(names, inner)


def _inflated(block: bytes) -> bytes:
    return zlib.decompressobj(wbits=-15).decompress(block, _LARGEST_BLOCK + 1)


def _by_arrow(codec: str) -> Callable[[bytes], bytes]:
    def decompress(block: bytes) -> bytes:
        import pyarrow as pa  # noqa: PLC0415 - 40 MB that most manifests never need

        content: bytes = pa.CompressedInputStream(pa.BufferReader(block), codec).read(_LARGEST_BLOCK + 1)
        return content

    return decompress


def _unsnapped(block: bytes) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 - see above

    # Avro puts four bytes of checksum behind it; snappy's own length stands first.
    length = _snappy_length(block)
    if length > _LARGEST_BLOCK:
        raise _too_large()
    return bytes(pa.decompress(block[:-4], length, codec="snappy", asbytes=True))


def _snappy_length(block: bytes) -> int:
    length = 0
    for shift, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:  # noqa: PLR2004 - as above
            break
    return length


_CODECS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": bytes,
    "deflate": _inflated,
    "snappy": _unsnapped,
    "zstandard": _by_arrow("zstd"),
    "bzip2": _by_arrow("bz2"),
}
