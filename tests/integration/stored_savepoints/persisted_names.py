"""Names of modules and classes that snapshots hold, and that may not be moved without an alias."""

import base64
import pickletools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from rocksdict import AccessType, Options, Rdict

from headrace.checkpoint.handles import OperatorSubtaskState, StateChunk, StateTable
from headrace.checkpoint.metadata import CheckpointMetadata
from headrace.checkpoint.storage.subtask_storage import StateReader
from headrace.state.rocksdb.snapshots import FILE

_PICKLE: Final = b"\x80\x05"
_BASE64: Final = re.compile(r"gAW[\w+/]+={0,2}")
"""Text that a pickle has become."""


def names_of_headrace(metadata: CheckpointMetadata, folder: Path) -> dict[str, set[str]]:
    """Return the names (`module name`) by where they stand. `folder`: an empty one, for the files of databases."""
    found: dict[str, set[str]] = {}
    for place, content in _contents(metadata, folder):
        names = {name for name in _names_in(content) if name.startswith("headrace.")}
        if names:
            found.setdefault(place, set()).update(names)
    return found


def _contents(metadata: CheckpointMetadata, folder: Path) -> Iterator[tuple[str, bytes]]:
    """All bytes of a snapshot that were not made by a format of Arrow or RocksDB."""
    for operator in metadata.operators:
        yield "coordinators of sources", operator.coordinator_state or b""
        for index, state in operator.subtasks.items():
            for one in state.committables:
                yield "committables", one.key.encode() + one.content
            place = folder / f"{operator.operator_id.hex()}-{index}"
            yield from _rows_of_database(state, place)
            for chunk in state.chunks:
                yield from _of_chunk(chunk)
    for commit in metadata.pending_commits:
        for one in commit.committables:
            yield "pending commits", one.key.encode() + one.content


def _of_chunk(chunk: StateChunk) -> Iterator[tuple[str, bytes]]:
    place = f"table {chunk.table.value}"
    for key, text in chunk.attributes.items():
        yield f"{place}, attribute '{key}'", text.encode()
    if chunk.table is StateTable.NATIVE or not chunk.file.digest:
        return
    source = pa.BufferReader(StateReader().read(chunk.file))
    if chunk.table is StateTable.CHANNELS:
        with pa.ipc.open_stream(source) as stream:
            table = stream.read_all()
    else:
        table = pq.read_table(source)
    yield f"{place}, schema", str(table.schema).encode()
    for name in table.column_names:
        for value in _bytes_in(table.column(name).to_pylist()):
            yield f"{place}, column '{name}'", value


def _bytes_in(value: Any) -> Iterator[bytes]:
    match value:
        case bytes():
            yield value
        case str():
            yield value.encode()
        case list() | tuple():
            for one in value:
                yield from _bytes_in(one)
        case dict():
            yield from _bytes_in(list(value.values()))
        case _:
            pass


def _rows_of_database(state: OperatorSubtaskState, place: Path) -> Iterator[tuple[str, bytes]]:
    native = [chunk for chunk in state.chunks if chunk.table is StateTable.NATIVE]
    if not native:
        return
    place.mkdir()
    for chunk in native:
        StateReader().fetch(chunk.file, str(place / chunk.attributes[FILE]))
    options = Options(raw_mode=True)
    names: list[str] = Rdict.list_cf(str(place), options)
    families = {name: Options(raw_mode=True) for name in names}
    database: Any = Rdict(str(place), options, families, access_type=AccessType.read_only())
    for name in names:
        yield "names of tables in RocksDB", name.encode()
        kind = "states" if name.startswith("state-") else "timers"
        for key, value in database.get_column_family(name).items():
            yield f"keys of {kind} in RocksDB", key
            yield f"values of {kind} in RocksDB", value
    database.close()


def _names_in(content: bytes) -> Iterator[str]:
    """The names in all pickles within some bytes, and in those that have become text."""
    start = content.find(_PICKLE)
    while start >= 0:
        yield from _names_in_pickle(content[start:])
        start = content.find(_PICKLE, start + 1)
    for match in _BASE64.finditer(content.decode("latin-1")):
        yield from _names_in(base64.b64decode(match.group()))


def _names_in_pickle(content: bytes) -> Iterable[str]:
    found: list[str] = []
    pushed: list[Any] = []
    memory: list[Any] = []
    try:
        for operation, argument, _ in pickletools.genops(content):
            match operation.name:
                case "STACK_GLOBAL":
                    found.append(f"{pushed[-2]} {pushed[-1]}")
                    pushed.append(None)
                case "MEMOIZE":
                    memory.append(pushed[-1])
                case "BINGET" | "LONG_BINGET":
                    assert isinstance(argument, int)
                    pushed.append(memory[argument])
                case "FRAME" | "PROTO" | "STOP":
                    pass
                case _:
                    pushed.append(argument if isinstance(argument, str) else None)
    except (ValueError, IndexError):
        return ()  # bytes that only begin as a pickle does
    return found
