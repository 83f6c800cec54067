"""`headrace trace exchange`: shows flow control at work, on a real exchange of a few rows in one process.

Each step of the exchange is shown as a line for its event, one line per frame sent, and the credit accounts.
"""

import math
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.network.trace.exchange import TraceSettings, trace_exchange
from headrace.network.trace.steps import PRODUCER, Reading, TraceStep, to_json

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
"""Largest width of the output, and its width in a pipe."""
STACKED: Final = 0
"""Width of the first column that puts the text of a step above its figures."""

HOW_TO_READ: Final = """\
Each line is one step; below it are the frames that it sent, and to the right the segments of each kind after the step.
One credit pays for one segment, and here each row fills one.
  A's credit   segments that A may still send   A's queue     batches and events that wait at A
  on way       sent, but not yet received       idle          empty segments at B, reserved for this channel
  required     segments that B wants to reserve: the backlog that A announced, and the exclusive ones
  unannounced  reserved, but A does not know yet        pool  floating segments that no channel has
  held         segments with batches that B's task has not taken: E exclusive, F floating
  ✓            A's credit + both on way + unannounced = idle exclusive + idle floating, and no segment is lost\
"""


def text_width(console_width: int) -> int:
    """Return the width of the first column, or STACKED if there is no room for it."""
    width = min(_TEXT_WIDTH_MAX, console_width - FIGURES_WIDTH)
    return width if width >= _TEXT_WIDTH_MIN else STACKED


def heading(width: int) -> Table:
    """Return the names of the columns, the first of width `width`."""
    table = _grid(width)
    names = [Text(name, style="bold", justify="right") for name, _, _ in COLUMNS]
    rules = ["─" * column_width for _, column_width, _ in COLUMNS]
    happens = Text("" if width == STACKED else "\nwhat happens", style="bold")
    table.add_row("", happens, *names, Text("\nlaw", style="bold"))
    table.add_row("─" * _NUMBER_WIDTH, "─" * width, *rules, "─" * _LAW_WIDTH)
    return table


def row(width: int, step: TraceStep, previous: Reading | None) -> RenderableType:
    """Return a step; figures that differ from `previous` are highlighted."""
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
    """Yield the conclusions from a trace, paragraph by paragraph."""
    sent = Counter(frame.name for step in steps for frame in step.sent)
    readings = [step.reading for step in steps if step.reading is not None]
    yield HOW_TO_READ
    waits = sum(reading.sender_credit == 0 < reading.queue for reading in readings)
    held = max((reading.held_exclusive + reading.held_floating for reading in readings), default=0)
    segments = settings.exclusive_count + settings.floating_count
    yield (
        f"Rows: {settings.row_count}. Data frames: {sent['Data']}. AddCredit frames, after the credit of the first "
        f"request: {sent['AddCredit']}. Steps at which A had something to send and no credit: {waits}. Most segments "
        f"that B held: {held}; the channel never has more than {segments}, however slow its task is."
    )
    if settings.channel_count == 1:
        yield (
            "The gate has one remote channel, so it began with all floating segments (--channels 2 shows how they "
            "are shared)."
        )
    broken = [step.number for step in steps if not step.is_lawful]
    if broken:
        yield f"The invariant does NOT hold at step {', '.join(map(str, broken))}: please report this."
    else:
        yield f"The invariant held at each of the {len(steps)} steps ✓"


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


_HELP: Final = """\
Print every frame, credit and segment of a tiny exchange.

A producer on TaskManager A writes rows, a consumer on TaskManager B reads them. Protocol, partitions, gates and memory
are the real ones; both run in this process, one step at a time. Spark is not started.

\b
Try it:
  headrace trace exchange                             five rows, and a task that takes them at once
  headrace trace exchange --slow-consumer --rows 20   back pressure: A's queue fills and its task stops
  headrace trace exchange --floating 0                with exclusive segments alone
  headrace trace exchange --channels 1                a lone channel may have all floating segments at once
  headrace trace exchange --step                      one step for each Enter
  headrace trace exchange --delay 0.5                 one step each half second
  headrace trace exchange --seed 3                    another order of the same events
  headrace trace exchange --json | jq .reading        a line of JSON for each step
"""


def _count(
    name: str, least: int, most: int, default: int, meaning: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    value_type = click.IntRange(least, most)
    return click.option(name, type=value_type, default=default, show_default=True, help=meaning)


class _Seconds(click.FloatRange):
    """A range of numbers that also refuses NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is not in the range {self.min}<=x<={self.max}.", param, ctx)
        return seconds


_GROUP_HELP: Final = """\
Show parts of Headrace at work, step by step.

\b
Try it:
  headrace trace exchange
"""


@click.group(help=_GROUP_HELP)
def trace() -> None:
    """The group of all traces."""


@trace.command(help=_HELP)
@_count("--rows", 1, 1000, TraceSettings.row_count, "Rows that A writes.")
@_count("--exclusive", 1, 100, TraceSettings.exclusive_count, "Exclusive segments of each channel.")
@_count(
    "--floating",
    0,
    100,
    TraceSettings.floating_count,
    "Floating segments, which the gate's channels share.",
)
@_count(
    "--channels", 1, 8, TraceSettings.channel_count, "Remote channels; only the first carries rows."
)
@click.option(
    "--slow-consumer",
    is_flag=True,
    help="Make B's task take a batch only when no other step is possible.",
)
@click.option("--step", "steps_by_key", is_flag=True, help="Wait for Enter after each step.")
@click.option(
    "--delay",
    type=_Seconds(0, 60),
    default=0.0,
    metavar="SECONDS",
    help="Seconds to wait after each step.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per step, with every field of each frame.",
)
@click.option(
    "--seed", type=int, default=None, help="Choose the order of steps at random, from this seed."
)
def exchange(
    rows: int,
    exclusive: int,
    floating: int,
    channels: int,
    slow_consumer: bool,
    steps_by_key: bool,
    delay: float,
    as_json: bool,
    seed: int | None,
) -> int:
    """Trace an exchange; the help text is `_HELP`. The exit code is 1 if the invariant was broken."""
    settings = TraceSettings(rows, exclusive, floating, channels, slow_consumer, seed)
    steps = trace_exchange(settings)
    paced = _paced(steps, delay, steps_by_key=steps_by_key)
    if as_json:
        for step in paced:
            click.echo(to_json(step))
    else:
        _print(Console(width=None if sys.stdout.isatty() else WIDTH_MAX), settings, steps, paced)
    return 0 if all(step.is_lawful for step in steps) else 1


def _print(
    console: Console, settings: TraceSettings, steps: list[TraceStep], paced: Iterator[TraceStep]
) -> None:
    width = text_width(console.width)
    _show(console, heading(width))
    previous: Reading | None = None
    for step in paced:
        _show(console, row(width, step, previous))
        previous = step.reading
    for paragraph in conclusion(settings, steps):
        _show(console, Text("\n" + paragraph))


def _show(console: Console, what: RenderableType) -> None:
    if console.is_terminal:
        console.print(what)
        return
    with console.capture() as captured:
        console.print(what)
    # Rich fills every line up to the width: of no use in a file.
    click.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _paced(steps: list[TraceStep], delay_s: float, *, steps_by_key: bool) -> Iterator[TraceStep]:
    """Yield the steps one at a time, at the requested pace."""
    never = threading.Event()
    for index, step in enumerate(steps):
        yield step
        if index + 1 == len(steps):
            return
        if steps_by_key:
            # At the end of the input the rest follows at once.
            steps_by_key = bool(sys.stdin.readline())
        elif delay_s:
            sys.stdout.flush()
            never.wait(delay_s)
