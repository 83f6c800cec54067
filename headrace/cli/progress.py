"""The live display of a running job: a table on a terminal, plain lines elsewhere; fed by the Dispatcher."""

import sys
import threading
from collections.abc import Iterator
from typing import Any, Final

import click
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from headrace.api.executors import PipelineExecutor
from headrace.api.job_client import JobClient
from headrace.cli.progress_view import (
    JobView,
    plain_line,
    rate_text,
    share_text,
    shorten,
    view_of,
    watermark_text,
)
from headrace.core.clock import SystemClock
from headrace.core.ids import ClusterDataSetId
from headrace.core.threads import start_thread
from headrace.gateways.cluster_partitions import DataSetInfo
from headrace.gateways.job_master import JobDetails
from headrace.graph.job_graph import JobGraph

TERMINAL_INTERVAL_S: Final = 0.5
PLAIN_INTERVAL_S: Final = 2.0
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
        """Make the display that was asked for; by default there is one where standard error is a terminal."""
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


def table_of(view: JobView, width: int) -> Table:
    """Return the table for a terminal of `width` columns: names give way, figures stay whole."""
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


class WatchedExecutor:
    """A PipelineExecutor that shows each job it submits."""

    def __init__(self, executor: PipelineExecutor, display: ProgressDisplay) -> None:
        self._executor = executor
        self._display = display

    @property
    def name(self) -> str:
        """The executor's own name."""
        return self._executor.name

    def submit(self, job_graph: JobGraph) -> JobClient:
        """Submit and begin to watch."""
        client = self._executor.submit(job_graph)
        self._display.watch(client)
        return client

    def default_parallelism(self) -> int:
        """The executor's."""
        return self._executor.default_parallelism()

    def known_parallelism(self) -> int | None:
        """The executor's."""
        return self._executor.known_parallelism()

    def list_data_sets(self) -> tuple[DataSetInfo, ...]:
        """The executor's."""
        return self._executor.list_data_sets()

    def release_data_set(self, data_set: ClusterDataSetId) -> None:
        """The executor's."""
        self._executor.release_data_set(data_set)

    def close(self) -> None:
        """End the display, then the executor."""
        self._display.stop()
        self._executor.close()
