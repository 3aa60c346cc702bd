"""A small reader of Avro files: only the fields that are asked for, by their Iceberg field id.

Responsible for: the container format, and turning a writer's schema into a reader once (manifests of one writer share
one schema text, so that a soak pays for none of it).
Must not know: what a manifest is.

Fields that nobody asked for are skipped without being built: the bounds and counts that make up most of a manifest.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_SCHEMAS: Final = 64
"""Schema texts that are remembered: a partition spec of a table makes one each."""
_LONGEST: Final = 70
"""Bits after which a variable-length number can only be damage."""


class AvroError(ValueError):
    """Not an Avro file, a damaged one, or one with what Iceberg never writes."""


class Cursor:
    """A place in a buffer."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def long(self) -> int:
        """A zigzag number of variable length."""
        shift = number = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > _LONGEST:
                raise AvroError("a number in it has no end")

    def take(self, length: int) -> bytes:
        """The next ``length`` bytes."""
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise AvroError("it ends in the middle of a value")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def skip(self, length: int) -> None:
        """Pass over ``length`` bytes."""
        self.at += length
        if length < 0 or self.at > len(self.data):
            raise AvroError("it ends in the middle of a value")

    def blocks(self) -> Iterator[int]:
        """The number of items of each block of an array or a map."""
        while count := self.long():
            if count < 0:
                self.long()
                count = -count
            yield count


Reader = Callable[[Cursor], Any]
Record = dict[int, Any]
"""A record's wanted fields, by field id. An absent optional value is None."""

_PRIMITIVES: Final[dict[str, Reader]] = {
    "null": lambda _cursor: None,
    "boolean": lambda cursor: cursor.take(1) != b"\0",
    "int": Cursor.long,
    "long": Cursor.long,
    "float": lambda cursor: struct.unpack("<f", cursor.take(4))[0],
    "double": lambda cursor: struct.unpack("<d", cursor.take(8))[0],
    "bytes": lambda cursor: cursor.take(cursor.long()),
    "string": lambda cursor: cursor.take(cursor.long()).decode(),
    "enum": Cursor.long,
}

_SKIPS: Final[dict[str, Reader]] = {
    "null": lambda _cursor: None,
    "boolean": lambda cursor: cursor.skip(1),
    "int": Cursor.long,
    "long": Cursor.long,
    "float": lambda cursor: cursor.skip(4),
    "double": lambda cursor: cursor.skip(8),
    "bytes": lambda cursor: cursor.skip(cursor.long()),
    "string": lambda cursor: cursor.skip(cursor.long()),
    "enum": Cursor.long,
}


class _Compiler:
    """Turns a schema into functions. Named types are remembered: later fields may refer to them."""

    def __init__(self, wanted: frozenset[int]) -> None:
        self._wanted = wanted
        self._named: dict[str, Any] = {}

    def reader(self, schema: Any) -> Reader:
        """A function that builds the value."""
        return self._compile(schema, _PRIMITIVES, self._record)

    def skipper(self, schema: Any) -> Reader:
        """A function that passes over the value."""
        return self._compile(schema, _SKIPS, self._skip_record)

    def _compile(self, schema: Any, primitives: dict[str, Reader], record: Callable[[Any], Reader]) -> Reader:
        if isinstance(schema, list):
            return _union([self._compile(branch, primitives, record) for branch in schema])
        if isinstance(schema, str):
            return self._by_name(schema, primitives, record)
        if "name" in schema:
            self._named[schema["name"]] = schema
        match schema.get("type"):
            case "record":
                return record(schema)
            case "array" | "map" as kind:
                keys = [primitives["string"]] if kind == "map" else []
                items = schema["values" if kind == "map" else "items"]
                return _repeated([*keys, self._compile(items, primitives, record)])
            case "fixed":
                return _fixed(int(schema["size"]), skip=primitives is _SKIPS)
            case kind:
                return self._compile(kind, primitives, record)

    def _by_name(self, name: str, primitives: dict[str, Reader], record: Callable[[Any], Reader]) -> Reader:
        if name in primitives:
            return primitives[name]
        if name in self._named:
            return self._compile(self._named[name], primitives, record)
        raise AvroError(f"it has a type {name!r} that is not known")

    def _record(self, schema: Any) -> Reader:
        steps = [
            (field["field-id"], self.reader(field["type"]))
            if field.get("field-id") in self._wanted
            else (None, self.skipper(field["type"]))
            for field in schema["fields"]
        ]

        def read(cursor: Cursor) -> Record:
            values: Record = {}
            for field_id, step in steps:
                if field_id is None:
                    step(cursor)
                else:
                    values[field_id] = step(cursor)
            return values

        return read

    def _skip_record(self, schema: Any) -> Reader:
        steps = [self.skipper(field["type"]) for field in schema["fields"]]

        def skip(cursor: Cursor) -> None:
            for step in steps:
                step(cursor)

        return skip


def _union(branches: list[Reader]) -> Reader:
    def read(cursor: Cursor) -> Any:
        number = cursor.long()
        if not 0 <= number < len(branches):
            raise AvroError("a choice in it does not exist")
        return branches[number](cursor)

    return read


def _repeated(steps: list[Reader]) -> Reader:
    def read(cursor: Cursor) -> list[Any]:
        return [step(cursor) for count in cursor.blocks() for _ in range(count) for step in steps]

    return read


def _fixed(size: int, *, skip: bool) -> Reader:
    return (lambda cursor: cursor.skip(size)) if skip else (lambda cursor: cursor.take(size))


@lru_cache(maxsize=_SCHEMAS)
def _record_reader(schema: bytes, wanted: frozenset[int]) -> Reader:
    return _Compiler(wanted).reader(msgspec.json.decode(schema))


def _inflate(block: bytes) -> bytes:
    return zlib.decompress(block, wbits=-15)


def _with_arrow(codec: str) -> Callable[[bytes], bytes]:
    def decompress(block: bytes) -> bytes:
        import pyarrow as pa  # noqa: PLC0415 - 40 MB that most manifests never need

        if codec == "snappy":
            # Avro puts four bytes of checksum behind it; snappy's own length stands first.
            block = block[:-4]
            return bytes(pa.decompress(block, _snappy_length(block), codec=codec, asbytes=True))
        return bytes(pa.CompressedInputStream(pa.BufferReader(block), codec).read())

    return decompress


def _snappy_length(block: bytes) -> int:
    length = shift = 0
    for byte in block:
        length |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            break
        shift += 7
    return length


_CODECS: Final[dict[bytes, Callable[[bytes], bytes]]] = {
    b"null": bytes,
    b"deflate": _inflate,
    b"snappy": _with_arrow("snappy"),
    b"zstandard": _with_arrow("zstd"),
    b"bzip2": _with_arrow("bz2"),
}


_DAMAGE: Final = (
    # What decoding a damaged schema, number or block ends with.
    AttributeError,
    IndexError,
    KeyError,
    OSError,
    OverflowError,
    RecursionError,
    TypeError,
    UnicodeDecodeError,
    msgspec.DecodeError,
    zlib.error,
)


def records(content: bytes, wanted: frozenset[int]) -> Iterator[Record]:
    """The records of a file, read as far as they are asked for. Raises AvroError."""
    try:
        yield from _records(content, wanted)
    except _DAMAGE as error:
        raise AvroError(f"damaged: {type(error).__name__}") from error


def _records(content: bytes, wanted: frozenset[int]) -> Iterator[Record]:
    cursor = Cursor(content)
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise AvroError("not an Avro file")
    header = _header(cursor)
    sync = cursor.take(_SYNC)
    codec = header.get("avro.codec", b"null")
    if codec not in _CODECS:
        raise AvroError(f"its compression {codec.decode(errors='replace')!r} is not known")
    read = _record_reader(header["avro.schema"], wanted)
    while cursor.at < len(content):
        count = cursor.long()
        block = Cursor(_CODECS[codec](cursor.take(cursor.long())))
        if cursor.take(_SYNC) != sync:
            raise AvroError("a mark between two of its blocks is damaged")
        for _ in range(count):
            yield read(block)


def _header(cursor: Cursor) -> dict[str, bytes]:
    header: dict[str, bytes] = {}
    for count in cursor.blocks():
        for _ in range(count):
            name = cursor.take(cursor.long()).decode()
            header[name] = cursor.take(cursor.long())
    return header
