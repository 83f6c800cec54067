"""`headrace trace exchange`: watch flow control work, on a real exchange of a few rows in one process."""

import math
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import click
from rich.console import Console, RenderableType
from rich.text import Text

from headrace.cli.trace_view import WIDTH_MAX, conclusion, heading, row, text_width
from headrace.network.trace.exchange import TraceSettings, trace_exchange
from headrace.network.trace.steps import Reading, TraceStep, to_json

_HELP: Final = """\
Print every frame, credit and segment of a tiny exchange.

A producer on TaskManager A writes rows, a consumer on TaskManager B reads them. Protocol, partitions, gates and memory
are the real ones; the two live in this process, and one thing happens at a time. No Spark is started.

\b
Try it:
  headrace trace exchange                             five rows, and a task that takes them at once
  headrace trace exchange --slow-consumer --rows 20   back pressure: A's queue fills and its task stops
  headrace trace exchange --floating 0                with exclusive segments alone
  headrace trace exchange --channels 1                a lone channel may have all floating segments at once
  headrace trace exchange --step                      a step with each Enter
  headrace trace exchange --delay 0.5                 a step each half second
  headrace trace exchange --seed 3                    another order of the same events
  headrace trace exchange --json | jq .reading        a line of JSON for each step
"""


def _count(
    name: str, least: int, most: int, default: int, meaning: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    value_type = click.IntRange(least, most)
    return click.option(name, type=value_type, default=default, show_default=True, help=meaning)


class _Seconds(click.FloatRange):
    """A range whose bounds hold for what is no number too, which compares with none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is not in the range {self.min}<=x<={self.max}.", param, ctx)
        return seconds


@click.group(help="Watch parts of Headrace work, in slow motion.")
def trace() -> None:
    """The group of all traces."""


@trace.command(help=_HELP)
@_count("--rows", 1, 1000, TraceSettings.row_count, "Rows that A writes.")
@_count("--exclusive", 1, 100, TraceSettings.exclusive_count, "Segments of each channel alone.")
@_count(
    "--floating", 0, 100, TraceSettings.floating_count, "Segments that the gate's channels share."
)
@_count(
    "--channels", 1, 8, TraceSettings.channel_count, "Remote channels; only the first carries rows."
)
@click.option(
    "--slow-consumer",
    is_flag=True,
    help="B's task takes a batch only when nothing else can happen.",
)
@click.option("--step", "steps_by_key", is_flag=True, help="Wait for Enter after each step.")
@click.option(
    "--delay",
    type=_Seconds(0, 60),
    default=0.0,
    metavar="SECONDS",
    help="Wait so long after each step.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON object per step, with every field of each frame.",
)
@click.option("--seed", type=int, default=None, help="Let chance choose what happens next.")
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
    """Trace an exchange; the help text is `_HELP`. The exit code is 1 where the law was broken."""
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
    """Give the steps one at a time, as fast as they are wanted."""
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
