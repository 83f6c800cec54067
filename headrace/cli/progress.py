"""The live display of a running job: a table on a terminal, plain lines elsewhere, or only the reason for a wait.

The display asks the Dispatcher for the job's details; pure functions compute its content from two snapshots of them.
"""

import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from headrace.api.client.job_client import JobClient
from headrace.cli.figures import rate_text, share_text, shorten, watermark_text
from headrace.cli.jobs.job_figures import VertexFigures, share_of_time
from headrace.core.clock import SystemClock
from headrace.core.error_text import on_one_line, without_controls
from headrace.core.threads import start_thread
from headrace.gateways.job_master import JobDetails, VertexDetails
from headrace.metrics import names
from headrace.metrics.event_time import event_time_of
from headrace.metrics.metric_name import MetricName

_LATE: Final = (names.NUM_LATE_RECORDS_DROPPED.name, names.NUM_LATE_RECORDS_DIVERTED.name)


@dataclass(frozen=True)
class CountedVertex(VertexFigures):
    """A vertex with its counts; watermark None before every subtask has one; shares of the running subtasks."""

    records_in: int = 0
    records_out: int = 0
    records_per_second: float = 0.0
    late_records: int = 0


@dataclass(frozen=True)
class JobView:
    """The whole display at one moment."""

    name: str
    status: str
    elapsed_s: float
    vertices: tuple[CountedVertex, ...]
    explanation: str


def view_of(
    details: JobDetails, previous: JobDetails | None, interval_s: float, elapsed_s: float
) -> JobView:
    """Return the view of `details`; rates are over `interval_s`, since `previous` (None: the first snapshot)."""
    before = {} if previous is None else {vertex.vertex_id: vertex for vertex in previous.vertices}
    return JobView(
        on_one_line(details.name),
        details.status.name,
        elapsed_s,
        tuple(
            _counted(number, vertex, before.get(vertex.vertex_id), interval_s)
            for number, vertex in enumerate(details.vertices, 1)
        ),
        details.explanation,
    )


def _counted(
    number: int, vertex: VertexDetails, before: VertexDetails | None, interval_s: float
) -> CountedVertex:
    handled = _handled(vertex)
    rate = 0.0
    if before is not None and interval_s > 0:
        rate = max(0.0, (handled - _handled(before)) / interval_s)
    states = [subtask.state.name for subtask in vertex.subtasks]
    return CountedVertex(
        number,
        vertex.vertex_id.hex(),
        on_one_line(vertex.name),
        states[0] if len(set(states)) == 1 else "/".join(sorted(set(states))),
        vertex.parallelism,
        busy=_share(vertex, names.BUSY_TIME),
        back_pressured=_share(vertex, names.BACK_PRESSURED_TIME),
        watermark_ms=_least_watermark(vertex),
        records_in=int(_figure(vertex, names.NUM_RECORDS_IN)),
        records_out=int(_figure(vertex, names.NUM_RECORDS_OUT)),
        records_per_second=rate,
        late_records=_late(vertex),
    )


def _handled(vertex: VertexDetails) -> float:
    """Return the number of records received, or for a source, the number of records sent."""
    return max(_figure(vertex, names.NUM_RECORDS_IN), _figure(vertex, names.NUM_RECORDS_OUT))


def _figure(vertex: VertexDetails, row: MetricName) -> float:
    return vertex.metrics.get(row.name, 0.0)


def _share(vertex: VertexDetails, row: MetricName) -> float | None:
    shares = [
        subtask.metrics[row.name]
        for subtask in vertex.subtasks
        if not subtask.state.is_terminal and row.name in subtask.metrics
    ]
    return share_of_time(sum(shares) / len(shares)) if shares else None


def _late(vertex: VertexDetails) -> int:
    """Return the number of late records that operators of the vertex dropped or sent to a side output."""
    return int(
        sum(value for name, value in vertex.metrics.items() if name.rpartition(".")[2] in _LATE)
    )


def _least_watermark(vertex: VertexDetails) -> int | None:
    found = [
        event_time_of(lambda row, metrics=subtask.metrics: metrics.get(row.name))
        for subtask in vertex.subtasks
    ]
    reached = [watermark for watermark in found if watermark is not None]
    return min(reached) if reached and len(reached) == len(found) else None


def plain_line(view: JobView) -> str:
    """Return one line for logs and pipes."""
    parts = [_plain_part(vertex) for vertex in view.vertices]
    why = f" ({view.explanation})" if view.explanation else ""
    return f"[{view.elapsed_s:6.1f} s] {view.status}{why}: " + " | ".join(parts)


def _plain_part(vertex: CountedVertex) -> str:
    rate, watermark = rate_text(vertex.records_per_second), watermark_text(vertex.watermark_ms)
    text = f"{shorten(vertex.name, 28)} {rate}/s wm {watermark}"
    if vertex.busy is not None:
        text += f" busy {share_text(vertex.busy)}"
    if vertex.back_pressured is not None:
        text += f" bp {share_text(vertex.back_pressured)}"
    if vertex.late_records:
        text += f" late {rate_text(vertex.late_records)}"
    return text


TERMINAL_INTERVAL_S: Final = 0.5
PLAIN_INTERVAL_S: Final = 2.0
_RUNNING_INTERVAL_S: Final = 30.0
_WAIT_PATIENCE_MS: Final = 5_000.0
_WAIT_INTERVAL_MS: Final = 60_000.0
_SECONDS: Final = re.compile(r" \(for \d+ s\)")
"""The part of an explanation that changes every second."""
_ASK_TIMEOUT_S: Final = 10.0
_NAME_LENGTH_MIN: Final = 12
# The other columns with their padding, at the widest they get: counts like `12.3 k`, a minute of event time.
_FIGURES_WIDTH: Final = 67


class ProgressDisplay:
    """Shows one job at a time until it ends or `stop` is called."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal
        self._clock = SystemClock()
        self._stopped = threading.Event()
        self._thread: Any = None

    @classmethod
    def choose(cls, wanted: bool | None) -> "ProgressDisplay | None":
        """Return the display that was asked for; by default there is one if standard error is a terminal."""
        is_terminal = sys.stderr.isatty()
        return cls(is_terminal=is_terminal) if (is_terminal if wanted is None else wanted) else None

    def watch(self, client: JobClient) -> None:
        """Show this job from now on, on a thread of its own."""
        self.stop()
        self._stopped.clear()
        self._thread = start_thread("headrace-progress", lambda: self._run(client))

    def stop(self) -> None:
        """End the display and leave its last state on the screen."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=_ASK_TIMEOUT_S)
            self._thread = None

    def _run(self, client: JobClient) -> None:
        if not self._is_terminal:
            for view in self._views(client, PLAIN_INTERVAL_S):
                click.echo(plain_line(view), err=True)
            return
        console = Console(stderr=True)
        with Live(
            console=console, auto_refresh=False, redirect_stdout=True, redirect_stderr=True
        ) as live:
            for view in self._views(client, TERMINAL_INTERVAL_S):
                live.update(table_of(view, console.width), refresh=True)

    def _views(self, client: JobClient, interval_s: float) -> Iterator[JobView]:
        start_ns = last_ns = self._clock.monotonic_ns()
        previous: JobDetails | None = None
        while True:
            is_last = self._stopped.wait(interval_s)
            try:
                details = client.get_job_details().result(_ASK_TIMEOUT_S)
            except Exception:
                # The cluster is closing: the job's own end says what there is to say.
                return
            now_ns = self._clock.monotonic_ns()
            yield view_of(details, previous, (now_ns - last_ns) / 1e9, (now_ns - start_ns) / 1e9)
            previous, last_ns = details, now_ns
            if is_last or details.status.is_terminal_state():
                return


class SlotWait:
    """Decides when to report what a job waits for: after a while, and again if the cause has changed. Pure."""

    def __init__(self) -> None:
        self._since_ms: float | None = None
        self._told = ""
        self._told_ms = float("-inf")

    def line(self, explanation: str, monotonic_ms: float) -> str:
        """Return the text to print now, usually empty; `explanation` is empty while the job has all its slots."""
        if not explanation:
            self._since_ms, self._told = None, ""
            return ""
        if self._since_ms is None:
            self._since_ms = monotonic_ms
        cause = _SECONDS.sub("", explanation)
        is_early = monotonic_ms - self._since_ms < _WAIT_PATIENCE_MS
        if is_early or cause == self._told or monotonic_ms - self._told_ms < _WAIT_INTERVAL_MS:
            return ""
        self._told, self._told_ms = cause, monotonic_ms
        return f"the job waits for slots: {on_one_line(explanation)}"


class SlotWaitDisplay(ProgressDisplay):
    """Reports only what a job waits for; used without a display if the cluster is another process."""

    def __init__(self) -> None:
        super().__init__(is_terminal=False)

    def _run(self, client: JobClient) -> None:
        wait, interval_s = SlotWait(), PLAIN_INTERVAL_S
        while not self._stopped.wait(interval_s):
            try:
                details = client.get_job_details().result(_ASK_TIMEOUT_S)
            except TimeoutError:
                continue
            except Exception:
                # The job's own end says what there is to say.
                return
            if details.status.is_terminal_state():
                return
            line = wait.line(details.explanation, self._clock.monotonic_ms())
            if line:
                click.echo(without_controls(line), err=True)
            # Details of a job that runs, perhaps for months, are much to ask for.
            interval_s = PLAIN_INTERVAL_S if details.explanation else _RUNNING_INTERVAL_S


def table_of(view: JobView, width: int) -> Table:
    """Return the table for a terminal of `width` columns: names are shortened, figures are not."""
    name_length = max(_NAME_LENGTH_MIN, width - _FIGURES_WIDTH)
    table = Table(
        title=f"{view.name}: {view.status}, {view.elapsed_s:.0f} s",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        collapse_padding=True,
    )
    table.add_column("vertex", no_wrap=True)
    for column in ("in", "out", "rec/s", "watermark", "busy", "bp", "late"):
        table.add_column(column, justify="right", no_wrap=True)
    for vertex in view.vertices:
        table.add_row(
            f"{shorten(vertex.name, name_length)} ×{vertex.parallelism}",
            rate_text(vertex.records_in),
            rate_text(vertex.records_out),
            rate_text(vertex.records_per_second),
            watermark_text(vertex.watermark_ms),
            share_text(vertex.busy),
            share_text(vertex.back_pressured),
            rate_text(vertex.late_records) if vertex.late_records else "",
        )
    table.caption = view.explanation or "×: subtasks, bp: back-pressured share of time"
    return table
