"""The parts of docs/how_a_record_travels.md that the code makes: frames, kinds of partitions, segments, a trace."""

import inspect
import re
import struct
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from types import ModuleType
from typing import Final

from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.core.shuffle_descriptors import ResultPartitionType
from headrace.network import partition_factory
from headrace.network.stored import stored_partition
from headrace.network.trace.exchange import TraceSettings, trace_exchange
from headrace.network.trace.steps import Reading, TraceStep
from headrace.network.wire import frames, framing, handshake
from tools.pages.markdown import table

_TRACE_OPTIONS: Final = ("--slow-consumer",)
_TRACED: Final = (
    TraceSettings(5, is_consumer_slow=True),
    TraceSettings(5),
    TraceSettings(20, exclusive_count=1, floating_count=4, is_consumer_slow=True),
    TraceSettings(9, floating_count=0, is_consumer_slow=True),
)
_PLACES: Final[dict[str, Callable[[Reading], int]]] = {
    "pool": lambda reading: reading.pool,
    "idle_floating": lambda reading: reading.idle_floating,
    "held_floating": lambda reading: reading.held_floating,
    "idle_exclusive": lambda reading: reading.idle_exclusive,
    "held_exclusive": lambda reading: reading.held_exclusive,
}
_PLACE_NAMES: Final = {
    "pool": "floating, in the pool of the gate",
    "idle_floating": "floating, set aside for the channel",
    "held_floating": "floating, holds a batch",
    "idle_exclusive": "exclusive, set aside for the channel",
    "held_exclusive": "exclusive, holds a batch",
}


def frames_drawing() -> str:
    """Every frame between two TaskManagers as an arrow between consumer and producer."""
    arrows = {"Consumer → producer": "──►", "Producer → consumer": "◄──"}
    drawn: list[tuple[str, str, str]] = []
    both: list[str] = []
    for frame in framing.declared_frames():
        direction = (inspect.getdoc(frame) or "").partition(",")[0].partition(":")[0]
        fields = [name for name in frame.__struct_fields__ if name not in ("body", "markers")]
        arrow = next((drawn for start, drawn in arrows.items() if direction.startswith(start)), "")
        if arrow:
            drawn.append((arrow, frame.__name__, ", ".join(fields)))
        elif direction.startswith("Both ways"):
            both.append(frame.__name__)
    width = max(len(name) for _, name, _ in drawn)
    lines = ["```", f"consumer     {'frame':<{width}}   producer   fields"]
    lines += [
        f"   │   {arrow}   {name:<{width}}      │       {text}" for arrow, name, text in drawn
    ]
    lines.append(f"   │  ◄──►   {', '.join(both)}")
    return "\n".join([*lines, "```"])


def data_layout() -> str:
    """The bytes of a Data frame, from its layouts."""
    rows: list[tuple[str, str, str]] = []
    prefix_names = ("magic", "version", "frame id", "flags", "header length", "body length")
    data_names = [name for name in frames.Data.__struct_fields__ if name not in ("markers", "body")]
    offset = 0
    for names, layout, part in (
        (prefix_names, framing.PREFIX, "prefix"),
        (data_names, frames.Data.LAYOUT, "header"),
    ):
        kinds = re.findall(r"\d*[a-zA-Z]", layout.format)
        for name, kind in zip(names, kinds, strict=True):
            size = struct.calcsize("!" + kind)
            rows.append((f"{offset}", f"{size}", f"{part}: {name}"))
            offset += size
    rows.append(
        (
            f"{offset}",
            "13 each",
            "header: markers (row offset, kind, value; of latency 33, with whose)",
        )
    )
    rows.append(("then", "8 or none", "header: checksums of the body and of all before it"))
    rows.append(("then", "body length", "body: the rows, an Arrow message without its schema"))
    return "\n".join(table(("from byte", "bytes", "what"), rows))


def partition_kinds() -> str:
    """The table of `ResultPartitionType`."""
    rows = [
        (
            f"`{kind.value}`",
            kind.traits.consuming.value,
            _yes(kind.traits.is_reconsumable),
            kind.traits.release_by.value,
        )
        for kind in ResultPartitionType
    ]
    headings = ("kind", "consumers run", "read again", "released by")
    return "\n".join(table(headings, rows))


def segments_drawing() -> str:
    """Where a segment of a gate can be and what moves it, as seen in traces of different settings."""
    moves: Counter[tuple[str, str, str]] = Counter()
    for settings in _TRACED:
        steps = [step for step in trace_exchange(settings) if step.reading is not None]
        for before, after in pairwise(steps):
            moves.update(_moves(before, after))
    from_width = max(map(len, _PLACE_NAMES.values()))
    cause_width = max(len(cause) for _, _, cause in moves)
    lines = ["```"]
    for source, target, cause in sorted(moves):
        arrow = f"── {cause} {'─' * (cause_width - len(cause))}─►"
        lines.append(f"{_PLACE_NAMES[source]:<{from_width}}  {arrow}  {_PLACE_NAMES[target]}")
    return "\n".join([*lines, "```"])


def _moves(before: TraceStep, after: TraceStep) -> list[tuple[str, str, str]]:
    """Return what moved where, and why: batches first, then what the accounts did because of them."""
    assert before.reading is not None and after.reading is not None
    change = {
        place: count(after.reading) - count(before.reading) for place, count in _PLACES.items()
    }
    moves: list[tuple[str, str, str]] = []
    for kind, home in (("exclusive", "idle_exclusive"), ("floating", "pool")):
        held, idle = f"held_{kind}", f"idle_{kind}"
        if change[held] > 0:
            moves.append((idle, held, "a batch arrives"))
            change[idle] += change[held]
        elif change[held] < 0:
            moves.append((held, home, "the task takes the batch"))
            change[home] += change[held]
    if change["pool"] < 0:
        moves.append(("pool", "idle_floating", "a backlog is known, AddCredit"))
    elif change["pool"] > 0:
        moves.append(("idle_floating", "pool", "an exclusive one takes its place"))
    assert change["idle_exclusive"] == 0 and change["pool"] == -change["idle_floating"]
    return moves


def trace_text() -> str:
    """What `headrace trace exchange` prints."""
    printed = CliRunner().invoke(cli, ["trace", "exchange", *_TRACE_OPTIONS]).output
    command = " ".join(["$ headrace trace exchange", *_TRACE_OPTIONS])
    return f"```\n{command}\n{printed.rstrip()}\n```"


def docstring_drawing(module: ModuleType) -> Callable[[], str]:
    """Return a part: the indented block in the docstring of `module`."""

    def part() -> str:
        lines = (inspect.getdoc(module) or "").splitlines()
        block = [line for line in lines if line.startswith("    ")]
        assert block, f"{module.__name__} has no drawing"
        return "```\n" + inspect.cleandoc("\n".join(["", *block])) + "\n```"

    return part


def _yes(value: bool) -> str:
    return "yes" if value else "no"


PARTS: Final[dict[str, Callable[[], str]]] = {
    "frames": frames_drawing,
    "data-layout": data_layout,
    "handshake": docstring_drawing(handshake),
    "partition-kinds": partition_kinds,
    "partition-implementations": docstring_drawing(partition_factory),
    "stored-life": docstring_drawing(stored_partition),
    "segments": segments_drawing,
    "trace": trace_text,
}
