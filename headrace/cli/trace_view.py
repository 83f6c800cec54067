"""How the steps of a traced exchange look: a line for what happened, one per frame that left, and the accounts."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.network.trace.exchange import TraceSettings
from headrace.network.trace.steps import PRODUCER, Reading, TraceStep

_Column = tuple[str, int, Callable[[Reading], int | str]]


def _held(reading: Reading) -> str:
    letters = "E" * reading.held_exclusive + "F" * reading.held_floating
    return letters if len(letters) <= 5 else f"{reading.held_exclusive}E{reading.held_floating}F"


COLUMNS: Final[tuple[_Column, ...]] = (
    ("A's\ncredit", 6, lambda reading: reading.sender_credit),
    ("A's\nqueue", 5, lambda reading: reading.queue),
    ("data\non way", 6, lambda reading: reading.data_in_flight),
    ("credit\non way", 6, lambda reading: reading.credit_in_flight),
    ("idle\nexcl.", 5, lambda reading: reading.idle_exclusive),
    ("idle\nfloat.", 6, lambda reading: reading.idle_floating),
    ("re-\nquired", 6, lambda reading: reading.required),
    ("unan-\nnounced", 7, lambda reading: reading.unannounced),
    ("\npool", 4, lambda reading: reading.pool),
    ("\nheld", 5, _held),
)
_NUMBER_WIDTH: Final = 3
_LAW_WIDTH: Final = 3
_TEXT_WIDTH_MIN: Final = 40
_TEXT_WIDTH_MAX: Final = 52
FIGURES_WIDTH: Final = (
    _NUMBER_WIDTH + _LAW_WIDTH + sum(width for _, width, _ in COLUMNS) + len(COLUMNS) + 2
)
WIDTH_MAX: Final = FIGURES_WIDTH + _TEXT_WIDTH_MAX
"""More is not made use of; what is piped gets as much."""
STACKED: Final = 0
"""Instead of the width of the first column: what happened stands above its figures."""

HOW_TO_READ: Final = """\
A line says what happened; below it stand the frames that left because of it, and to the right how many segments were
where once all was quiet again. One credit pays for one segment, and here each row fills one.
  A's credit   what A may still send            A's queue     batches and events that wait at A
  on way       left, but not yet received       idle          set aside at B for this channel, and empty
  required     what B wants to have ready: the backlog that A told of, and the exclusive segments
  unannounced  set aside, and A has not been told       pool  floating segments that no channel has
  held         segments with batches that B's task has not taken: E exclusive, F floating
  ✓            A's credit + both on way + unannounced = idle exclusive + idle floating, and no segment is lost\
"""


def text_width(console_width: int) -> int:
    """Return how wide the first column may be, or STACKED where there is no room for it."""
    width = min(_TEXT_WIDTH_MAX, console_width - FIGURES_WIDTH)
    return width if width >= _TEXT_WIDTH_MIN else STACKED


def heading(width: int) -> Table:
    """Return the names of the columns, the first being `width` wide."""
    table = _grid(width)
    names = [Text(name, style="bold", justify="right") for name, _, _ in COLUMNS]
    rules = ["─" * column_width for _, column_width, _ in COLUMNS]
    happens = Text("" if width == STACKED else "\nwhat happens", style="bold")
    table.add_row("", happens, *names, Text("\nlaw", style="bold"))
    table.add_row("─" * _NUMBER_WIDTH, "─" * width, *rules, "─" * _LAW_WIDTH)
    return table


def row(width: int, step: TraceStep, previous: Reading | None) -> RenderableType:
    """Return a step; figures that differ from `previous` stand out."""
    happened = Text(step.text)
    for frame in step.sent:
        style = "cyan" if frame.source == PRODUCER else "magenta"
        happened.append(f"\n  {frame}", style=style)
    table = _grid(width)
    figures = [*_figures(step.reading, previous), _law(step)]
    if width != STACKED:
        table.add_row(str(step.number), happened, *figures)
        return table
    text = Table.grid(padding=(0, 1, 0, 0))
    text.add_column(width=_NUMBER_WIDTH, justify="right", style="dim")
    text.add_row(str(step.number), happened)
    table.add_row("", "", *figures)
    return Group(text, table)


def conclusion(settings: TraceSettings, steps: Sequence[TraceStep]) -> Iterator[str]:
    """What to take home, one paragraph after the other."""
    sent = Counter(frame.name for step in steps for frame in step.sent)
    readings = [step.reading for step in steps if step.reading is not None]
    yield HOW_TO_READ
    waits = sum(reading.sender_credit == 0 < reading.queue for reading in readings)
    held = max((reading.held_exclusive + reading.held_floating for reading in readings), default=0)
    segments = settings.exclusive_count + settings.floating_count
    yield (
        f"Rows: {settings.row_count}. Data frames: {sent['Data']}. AddCredit frames, beside the credit of the first "
        f"request: {sent['AddCredit']}. Steps at which A had something to send and no credit: {waits}. Most segments "
        f"that B held: {held}, of {segments} that the channel can have, however slow its task is."
    )
    if settings.channel_count == 1:
        yield (
            "The gate has one remote channel, which therefore began with all floating segments (--channels 2 shows how "
            "they are shared)."
        )
    broken = [step.number for step in steps if not step.is_lawful]
    if broken:
        yield f"The law does NOT hold at step {', '.join(map(str, broken))}: please report this."
    else:
        yield f"The law held at each of the {len(steps)} steps ✓"


def _grid(width: int) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=_NUMBER_WIDTH, justify="right", style="dim")
    table.add_column(width=width)  # STACKED: nothing but its padding
    for _, column_width, _ in COLUMNS:
        table.add_column(width=column_width, justify="right", no_wrap=True)
    table.add_column(width=_LAW_WIDTH, justify="right")
    return table


def _figures(reading: Reading | None, previous: Reading | None) -> list[Text]:
    if reading is None:
        return [Text("·", style="dim") for _ in COLUMNS]
    figures: list[Text] = []
    for _, _, value in COLUMNS:
        is_new = previous is None or value(previous) != value(reading)
        figures.append(Text(str(value(reading)), style="bold yellow" if is_new else ""))
    return figures


def _law(step: TraceStep) -> Text:
    if not step.is_lawful:
        return Text("✗", style="bold red")
    return Text("✓", style="green")
