"""protocol.md: every frame between two processes of the data plane, and the rules of credit."""

import ast
import inspect
from types import ModuleType
from typing import Final

from headrace.core.barriers import CancelCheckpointMarker, CheckpointBarrier
from headrace.core.elements import EndOfData, EndOfOutputChannelState, EndOfPartition, StopMode
from headrace.network.batches.sealed_batch import encode_event
from headrace.network.ingest.server import INGEST_CREDIT
from headrace.network.memory.sizing import BUFFERS_PER_CHANNEL, FLOATING_BUFFERS_PER_GATE
from headrace.network.wire import frames, framing
from headrace.network.wire.framing import encode_markers
from tools.pages.credit_example import credit_example
from tools.pages.frame_senders import frame_senders
from tools.pages.markdown import first_line, first_paragraph, table

_DIRECTIONS: Final = (
    "Consumer → producer",
    "Producer → consumer",
    "Pusher → source",
    "Source → pusher",
    "Producer → shuffle service",
    "Shuffle service → producer",
    "Both ways",
)


def protocol_page() -> str:
    """The data plane's protocol."""
    lines = [
        "# Protocol of the data plane",
        "",
        "Between two TaskManagers, between a Spark task that pushes a DataFrame and a TaskManager, and between a",
        "TaskManager and a shuffle service. One connection serves every channel between two processes, in both",
        f"directions; whoever pushes has one of its own. Declared in {_file(frames)}.",
        "",
        *_prefix_lines(),
        "## Frames",
        "",
        *_overview(),
        "",
        "Where both sides want checksums (`headrace.network.checksum`), the header of a frame that has one ends with",
        f"{framing.CHECKSUMS.size} bytes more: CRC-32 of the body, then CRC-32 of prefix and header up to there.",
        "",
        *_marker_and_event_lines(),
        "## Fields",
        "",
        *(line for frame in framing.declared_frames() for line in _frame_lines(frame)),
        *_credit_lines(),
    ]
    return "\n".join(lines) + "\n"


def _file(module: ModuleType) -> str:
    return f"`{module.__name__.replace('.', '/')}.py`"


def _prefix_lines() -> list[str]:
    return [
        "## Prefix",
        "",
        f"Every frame begins with {framing.PREFIX.size} bytes (`{framing.PREFIX.format}`, big-endian), which its",
        "header and its body follow.",
        "",
        *table(
            ("bytes", "field", "value"),
            [
                ("4", "magic", f'`{framing.MAGIC:#010x}`, "HDRW"'),
                ("1", "version", f"{framing.VERSION}"),
                ("1", "frame id", "see the table; an unknown one ends the connection"),
                ("2", "flags", f"{framing.CHECKSUM_FLAG}: the header ends with checksums; else 0"),
                ("4", "header length", f"at most {framing.HEADER_BYTES_MAX:,}"),
                ("4", "body length", "0 where the frame has no body"),
            ],
        ),
        "",
    ]


def _overview() -> list[str]:
    senders = frame_senders()
    rows = [
        (
            str(frame.FRAME_ID),
            f"`{frame.__name__}`",
            _split_direction(frame)[0],
            senders[frame.__name__],
            f"{frame.LAYOUT.size} bytes{' + markers' if frame.HAS_MARKERS else ''}",
            "yes" if frame.HAS_BODY else "no",
            "yes" if frame.HAS_CHECKSUM else "no",
            _split_direction(frame)[1],
        )
        for frame in framing.declared_frames()
    ]
    reserved = [f"{key} (`{name}`)" for key, name in sorted(framing.reserved_frames().items())]
    return [
        *table(
            (
                *("id", "frame", "direction", "sent by", "header"),
                *("body", "checksum", "meaning"),
            ),
            rows,
        ),
        "",
        f"Reserved ids, which no frame has and which end the connection: {', '.join(reserved)}.",
    ]


def _split_direction(frame: type[framing.Frame]) -> tuple[str, str]:
    """Direction and meaning: docstrings of frames begin with who sends them to whom."""
    text = first_paragraph(frame)
    for direction in _DIRECTIONS:
        if text.startswith(direction):
            meaning = text.removeprefix(direction).lstrip(",: ")
            return direction.lower(), meaning
    raise ValueError(f"the docstring of frame {frame.__name__} does not begin with a direction")


def _frame_lines(frame: type[framing.Frame]) -> list[str]:
    fields = [(f"`{name}`", comment) for name, comment in _field_comments(frame)]
    layout = f"Header layout `{frame.LAYOUT.format}`, {frame.LAYOUT.size} bytes."
    lines = [f"### {frame.FRAME_ID}: {frame.__name__}", "", layout, ""]
    return [*lines, *table(("field", "meaning"), fields), ""] if fields else lines


def _field_comments(frame: type[framing.Frame]) -> list[tuple[str, str]]:
    """Fields in order, with the comment that stands behind each in the class."""
    source = inspect.getsource(frame)
    source_lines = source.splitlines()
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.ClassDef)
    found: list[tuple[str, str]] = []
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            _, _, comment = source_lines[statement.lineno - 1].partition("#")
            name = statement.target.id
            found.append((name, comment.strip() or _MEANINGS.get(name, "")))
    return found


_MEANINGS: Final = {
    "markers": "watermarks and changes of idleness, each in front of a row of the body; see above",
}


def _marker_and_event_lines() -> list[str]:
    events = (
        ("EndOfData, DRAIN", EndOfData(StopMode.DRAIN)),
        ("EndOfData, NO_DRAIN", EndOfData(StopMode.NO_DRAIN)),
        ("EndOfPartition", EndOfPartition()),
    )
    encoded = [(name, encode_event(event)) for name, event in events]
    rows = [(str(kind), str(value), "", name) for name, (kind, value, _) in encoded]
    barrier, cancellation = CheckpointBarrier(0, 0), CancelCheckpointMarker(0)
    what = "the barrier as a msgpack array"
    rows.append((str(encode_event(barrier)[0]), "checkpoint id", what, "CheckpointBarrier"))
    rows.append((str(encode_event(cancellation)[0]), "checkpoint id", "", "CancelCheckpointMarker"))
    kind, value, _ = encode_event(EndOfOutputChannelState())
    rows.append((str(kind), str(value), "", "EndOfOutputChannelState; blocks upstream"))
    layout = first_line(encode_markers).removeprefix("Return ")
    codes = [
        (str(code), f"`{name}`") for name, code in vars(frames.ErrorCode).items() if name.isupper()
    ]
    return [
        f"Markers follow the header's fields, {layout} Kind 0 is a watermark (epoch ms),",
        "kind 1 a change of idleness (1: idle).",
        "",
        "Events:",
        "",
        *table(("kind", "value", "body", "event"), rows),
        "",
        "Codes of `Error` frames:",
        "",
        *table(("code", "meaning"), codes),
        "",
        "Code 6 is reserved.",
        "",
    ]


def _credit_lines() -> list[str]:
    return [_RULES_OF_CREDIT, "", _EXAMPLE, *credit_example()]


_RULES_OF_CREDIT: Final = f"""\
## Rules of credit

The accounts are `SenderAccount`, `ReceiverAccount` and `GateCredits` of `headrace/network/flow/credit.py`; one
credit pays for one segment.

1. A gate reserves its segments before it asks for anything: `{BUFFERS_PER_CHANNEL.key}`
   ({BUFFERS_PER_CHANNEL.default}) for each remote channel, and
   `{FLOATING_BUFFERS_PER_GATE.key}` ({FLOATING_BUFFERS_PER_GATE.default}) that its channels share.
2. `PartitionRequest` carries the initial credit: the channel's exclusive segments, and all floating ones where
   the gate has no other remote channel. It also says how large a segment is, and the most that the channel can
   ever be granted.
3. What is queued for another process is cut between rows to one segment of the consumer, so that a batch
   costs one credit. A single row that is larger costs as many as it fills; one that is larger than the most
   that the channel can be granted is an error. A batch leaves when all its credits are there.
4. `Data` says how many segments wait behind it (`backlog`). The consumer sets floating segments aside for
   them as far as it has any, in the order in which its channels asked, and announces them by `AddCredit`.
5. `Backlog` says the same where there is some credit, and too little for the next batch.
6. When the task takes a batch out of its gate, floating segments go back to the gate, for whichever channel
   waits first. Exclusive ones go back to their channel: each is announced, or takes the place of a floating
   one that the channel does not need any more. A channel that is alone in its gate keeps the floating ones.
7. Nothing is announced while the producer knows of half of what the channel has, and of enough for the
   backlog that it told of, unless it said that it lacks credit.
8. Events and control frames are free.
9. Data without credit, or with more bytes than it pays for, is refused before memory is taken for it; the
   connection ends.

At every instant, for every channel:

    credit at the sender + data in flight + credit in flight + unannounced = idle exclusive + idle floating

A pushed DataFrame has simpler credit: `{INGEST_CREDIT.key}` ({INGEST_CREDIT.default}) batches of a partition
may be under way, and each batch that the source takes gives one back."""
_EXAMPLE: Final = """\
## An example

A gate reads from producers A and B in another process. A has 13 batches of one segment each, B has none yet,
and the task is slow: it takes batches only when A can go no further. The counts are segments; this table comes
from running the accounts.
"""
