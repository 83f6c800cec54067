"""The view of `headrace top`: figures of a job as a table for a terminal, or as lines for a pipe."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.cli.figures import (
    duration_text,
    rate_text,
    share_text,
    shorten,
    size_or_dash,
    watermark_text,
)
from headrace.cli.jobs.cluster_command import ENDED
from headrace.cli.jobs.job_figures import JobFigures, ShownCheckpoints, VertexFigures
from headrace.metrics.event_time import lag_ms

BAR_WIDTH: Final = 20
_NAME_LENGTH_MIN: Final = 18
_PADDING: Final = 2
HEAD_HEIGHT: Final = 9
"""Lines of the screen that show no vertices: at most three above the table, its heading and space, and two below."""
_SKEW_SHOWN: Final = 0.1
_STATE_STYLES: Final = {
    "RUNNING": "green",
    "FINISHED": "blue",
    "FAILED": "bold red",
    "FAILING": "bold red",
    "RESTARTING": "bold yellow",
    "CANCELED": "dim",
}
# Told apart without colours too.
_PARTS: Final = (("█", "red"), ("▒", "yellow"), ("░", "dim"))


@dataclass(frozen=True)
class Column:
    """A column right of the names, as wide as its widest cell with the space around it."""

    name: str
    width: int
    cell: Callable[[VertexFigures, int], Text]
    """Function that returns a vertex's cell at a time in epoch milliseconds."""
    justify: Literal["left", "right"] = "right"


LEGEND: Final = "█ busy  ▒ back-pressured  ░ idle"


def screen_of(
    figures: JobFigures, width: int, first: int, count: int, notice: str = ""
) -> RenderableType:
    """Return the whole screen, with `count` vertices from `first` on."""
    state = Text(figures.state, style=_STATE_STYLES.get(figures.state, ""))
    title = Text.assemble(
        (shorten(figures.name, max(20, width - 60)), "bold"),
        "  ",
        state,
        f"  {duration_text(figures.duration_ms)}",
    )
    if figures.restarts:
        title.append(f"  restarts {figures.restarts}", style="yellow")
    lines: list[RenderableType] = [
        _line(title),
        Text(shorten(checkpoint_line(figures), 2 * width)),
        _table(figures, width, first, count),
    ]
    if figures.failure:
        lines.append(_line(Text(figures.failure, style="red")))
    elif figures.held_lock:
        lines.append(_line(Text(figures.held_lock, style="yellow")))
    lines.append(_line(_foot(figures, width, first, count, notice)))
    return Group(*lines)


def _foot(figures: JobFigures, width: int, first: int, count: int, notice: str) -> Text:
    if notice:
        return Text(notice, style="bold yellow")
    has_bars = any(column.name == "time" for column in columns_for(width))
    parts = [LEGEND] if has_bars else []
    total = len(figures.vertices)
    if count < total:
        parts.append(f"vertices {first + 1}-{min(first + count, total)} of {total}, arrows scroll")
    return Text("   ".join([*parts, "q quits"]), style="dim")


def _line(text: Text) -> Text:
    """Limit a text to one line, because the screen has a fixed number of lines."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _table(figures: JobFigures, width: int, first: int, count: int) -> Table:
    columns = columns_for(width)
    name_length = width - sum(column.width for column in columns) - _PADDING
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("vertex", no_wrap=True)
    for column in columns:
        table.add_column(column.name, justify=column.justify, no_wrap=True)
    for vertex in figures.vertices[first : first + count]:
        title = f"{vertex.number} {vertex.name}"
        parallelism = f" ×{vertex.parallelism}"
        table.add_row(
            Text(shorten(title, max(1, name_length - len(parallelism))) + parallelism),
            *(column.cell(vertex, figures.now_ms) for column in columns),
        )
    return table


def columns_for(width: int) -> list[Column]:
    """Return the columns for which a terminal has room besides the names; the less important ones are dropped first."""
    shown = list(_COLUMNS)
    for name in _FIRST_TO_GO:
        if width - sum(column.width for column in shown) - _PADDING >= _NAME_LENGTH_MIN:
            break
        shown = [column for column in shown if column.name != name]
    return shown


def bar_of(vertex: VertexFigures) -> Text:
    """Return a bar of 20 characters: shares of time that its subtasks were busy, back-pressured and idle."""
    bar = Text()
    shares = (vertex.busy, vertex.back_pressured, vertex.idle)
    for (sign, style), length in zip(_PARTS, bar_lengths(shares), strict=True):
        bar.append(sign * length, style=style)
    return bar


def bar_lengths(shares: Sequence[float | None]) -> list[int]:
    """Return the lengths of the parts of a bar; together they are never longer than it."""
    lengths: list[int] = []
    total, used = 0.0, 0
    for share in shares:
        # Rounded at the ends of the parts, so that the whole is as long as the sum says.
        total += share or 0.0
        end = min(BAR_WIDTH, round(total * BAR_WIDTH))
        lengths.append(end - used)
        used = end
    return lengths


def busy_text(vertex: VertexFigures) -> str:
    """Return the busy share, and that of the busiest subtask if it differs much."""
    text = share_text(vertex.busy)
    if vertex.busy is None or vertex.busy_most is None:
        return text
    is_skewed = vertex.busy_most - vertex.busy > _SKEW_SHOWN
    return f"{text}≤{share_text(vertex.busy_most)}" if is_skewed else text


def _rate(per_second: float | None) -> str:
    return "" if per_second is None else rate_text(per_second)


def lag_text(vertex: VertexFigures, now_ms: int) -> str:
    """Return how far the watermark is behind the clock."""
    lag = lag_ms(vertex.watermark_ms, now_ms)
    return "" if lag is None else duration_text(lag) if lag >= 0 else f"-{duration_text(-lag)}"


def checkpoint_line(figures: JobFigures) -> str:
    """Return the line about checkpoints."""
    found = figures.checkpoints
    if found is None:
        return "checkpoints: off"
    line = f"checkpoints: {found.completed} completed, {found.failed} failed, {found.in_progress} in progress"
    if found.last_id is not None:
        line += _last(found, None if figures.state in ENDED else figures.now_ms)
    if found.failure:
        line += f"; the newest failed: {found.failure.splitlines()[0]}"
    return line


def _last(found: ShownCheckpoints, now_ms: int | None) -> str:
    """Describe the last checkpoint; its age only if the job still runs."""
    age = "" if now_ms is None else f", {duration_text(now_ms - found.last_ended_ms)} ago"
    took = duration_text(found.last_duration_ms)
    return f"; last {found.last_id}{age}, took {took}, {size_or_dash(found.last_size_bytes)}"


_COLUMNS: Final = (
    Column(
        "state",
        14,
        lambda vertex, _: Text(vertex.state, _STATE_STYLES.get(vertex.state, "")),
        "left",
    ),
    Column("time", BAR_WIDTH + 2, lambda vertex, _: bar_of(vertex), "left"),
    Column("busy", 10, lambda vertex, _: Text(busy_text(vertex))),
    Column("bp", 6, lambda vertex, _: Text(share_text(vertex.back_pressured))),
    Column("in/s", 9, lambda vertex, _: Text(_rate(vertex.records_in_per_second))),
    Column("out/s", 9, lambda vertex, _: Text(_rate(vertex.records_out_per_second))),
    Column("watermark", 18, lambda vertex, _: Text(watermark_text(vertex.watermark_ms))),
    Column("lag", 11, lambda vertex, now_ms: Text(lag_text(vertex, now_ms))),
)
_FIRST_TO_GO: Final = ("watermark", "time", "state", "out/s", "in/s", "bp", "lag", "busy")


def plain_lines(figures: JobFigures) -> list[str]:
    """Return the view for files and pipes, a line for each vertex."""
    restarts = "" if figures.restarts is None else f", restarts: {figures.restarts}"
    lines = [
        f"{figures.name} ({figures.job_id}): {figures.state}, {duration_text(figures.duration_ms)}{restarts}",
        checkpoint_line(figures),
    ]
    if figures.failure or figures.held_lock:
        lines.append(figures.failure or figures.held_lock)
    return lines + [_plain_line(vertex, figures.now_ms) for vertex in figures.vertices]


def _plain_line(vertex: VertexFigures, now_ms: int) -> str:
    facts = [
        ("busy", busy_text(vertex)),
        ("back-pressured", share_text(vertex.back_pressured)),
        ("idle", share_text(vertex.idle)),
        ("in/s", _rate(vertex.records_in_per_second)),
        ("out/s", _rate(vertex.records_out_per_second)),
        ("watermark", "" if vertex.watermark_ms is None else watermark_text(vertex.watermark_ms)),
        ("lag", lag_text(vertex, now_ms)),
    ]
    shown = "  ".join(f"{name} {text}" for name, text in facts if text)
    return (
        f"{vertex.number:>3} {vertex.name} ×{vertex.parallelism} {vertex.state}  {shown}".rstrip()
    )
