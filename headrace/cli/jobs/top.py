"""`headrace top`: a live view of a job, refreshed until a key of the terminal ends it."""

import dataclasses
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TextIO

import click
from rich.console import Console
from rich.live import Live

from headrace.cli.figures import duration_text
from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession, is_ended
from headrace.cli.jobs.exceptions import message_of, place_of
from headrace.cli.jobs.job_figures import (
    METRICS,
    JobFigures,
    ShownCheckpoints,
    VertexFigures,
    checkpoint_figures,
    vertex_figures,
)
from headrace.cli.jobs.top_view import HEAD_HEIGHT, plain_lines, screen_of
from headrace.cli.termination import interrupted_by_sigterm
from headrace.core.error_text import on_one_line, without_controls
from headrace.metrics.cluster_names import NUM_RESTARTS
from headrace.rest.client import RestClient, path_of
from headrace.rest.client_errors import ClusterEndedError, RestError, RestRefusedError
from headrace.rest.home.connections import has_ended

_FAILURES_MAX: Final = 5
"""Failed requests in a row after which the view ends."""
_HELP: Final = """\
Watch a job: how busy and back-pressured each vertex is, records per second, watermarks and their lag, checkpoints and
restarts. q or Ctrl-C ends it; arrows and PgUp, PgDn scroll.

Without JOB_ID it shows the only running job. If standard output is not a terminal, it prints once.

\b
Try it:
  headrace top
  headrace top -i 5 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e     every 5 seconds
  headrace top --once | grep -v RUNNING
  headrace top --json | jq '.vertices[] | {name, busy, "back-pressured"}'
"""
KEYS: Final = {
    b"q": "quit",
    b"Q": "quit",
    b"\x03": "quit",
    b"\x04": "quit",
    b"\x1b": "quit",
    b"k": "up",
    b"j": "down",
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b" ": "page down",
    b"g": "home",
    b"G": "end",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
}
"""Names of keys by the bytes that a terminal sends for them."""
_SENT_MAX: Final = 16
_NOT_FOUND = 404
_TROUBLED = ("FAILING", "FAILED", "RESTARTING")


class JobReader:
    """Reads the figures of a job repeatedly."""

    def __init__(self, client: RestClient, job_id: str) -> None:
        self._client = client
        self._job_id = job_id

    def read(self, first: int = 0, count: int | None = None) -> JobFigures:
        """Return the figures of the job; with metrics of `count` vertices from `first` on; None: of all."""
        job = self._client.get_object(path_of("jobs", self._job_id))
        state = str(job["state"])
        vertices: list[dict[str, Any]] = job.get("vertices", [])
        end = len(vertices) if count is None else first + count
        shown = [
            vertex_figures(index + 1, one, self._metrics(one) if first <= index < end else None)
            for index, one in enumerate(vertices)
        ]
        return JobFigures(
            self._job_id,
            on_one_line(str(job["name"])),
            state,
            int(job.get("now", 0)),
            int(job.get("duration", 0)),
            tuple[VertexFigures, ...](shown),
            self._restarts(),
            self._checkpoints(),
            self._failure() if state in _TROUBLED else "",
            "" if is_ended(state) else self._held_lock(),
        )

    def _metrics(self, vertex: dict[str, Any]) -> Any:
        path = path_of("jobs", self._job_id, "vertices", vertex["id"], "subtasks", "metrics")
        return self._if_there(path, get=",".join(METRICS))

    def _restarts(self) -> int | None:
        found = self._if_there(path_of("jobs", self._job_id, "metrics"), get=NUM_RESTARTS.name)
        try:
            return int(float(found[0]["value"]))
        except (LookupError, TypeError, ValueError):
            return None

    def _checkpoints(self) -> ShownCheckpoints | None:
        found = self._if_there(path_of("jobs", self._job_id, "checkpoints"))
        return None if found is None else checkpoint_figures(found)

    def _failure(self) -> str:
        found = self._if_there(path_of("jobs", self._job_id, "exceptions"), maxExceptions=1)
        entries = ((found or {}).get("exceptionHistory") or {}).get("entries") or []
        if not entries:
            return ""
        place = place_of(entries[0].get("stacktrace", ""))
        said = message_of(entries[0])
        return without_controls(f"{place}: {said}" if place else said)

    def _held_lock(self) -> str:
        found: dict[str, Any] = self._if_there("/taskmanagers") or {}
        for each in found.get("taskmanagers", []):
            held = each.get("heldInterpreterLock")
            if held is not None:
                where = str(held["function"]) or "an unknown function"
                text = (
                    f"TaskManager {each['id']} does not answer: its interpreter lock is held for "
                    f"{duration_text(int(held['duration']))} in {where}"
                )
                return without_controls(on_one_line(text))
        return ""

    def _if_there(self, path: str, **query: object) -> Any:
        """Return an answer; None if there is none, such as for checkpoints that are off."""
        try:
            return self._client.get(path, **query)
        except RestRefusedError as error:
            if error.status == _NOT_FOUND:
                return None
            raise


class Keys(Protocol):
    """A source of key presses."""

    def wait(self, seconds: float) -> str | None:
        """Return the name of the next key; None if no known key was pressed in time."""
        ...


class TerminalKeys:
    """Keys of a terminal that sends each byte at once."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str | None:
        """Wait for a key."""
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if not ready:
            return None
        # All that one key sends is there at once.
        sent = os.read(self._descriptor, _SENT_MAX)
        return "quit" if not sent else KEYS.get(sent)


class NoKeys:
    """Keys if standard input is not a terminal: nothing is pressed, and Ctrl-C ends the view."""

    def wait(self, seconds: float) -> str | None:
        """Let the time pass."""
        threading.Event().wait(seconds)
        return None


@contextmanager
def keyboard(terminal: TextIO) -> Generator[Keys]:
    """Yield the keys of a terminal, whose mode is restored afterwards."""
    if not terminal.isatty():
        yield NoKeys()
        return
    descriptor = terminal.fileno()
    before: list[Any] = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield TerminalKeys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@click.command(cls=ClusterCommand, help=_HELP)
@click.option(
    "-i",
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two refreshes.",
)
@click.option("--once", "is_once", is_flag=True, help="Print the figures once, and end.")
@click.argument("job_id", type=JOB_ID, metavar="[JOB_ID]", required=False)
@click.pass_obj
def top(session: ClusterSession, interval: float, is_once: bool, job_id: str | None) -> int:
    """Watch a job; the help text is `_HELP`."""
    job_id = session.job_named(job_id)
    reader = JobReader(session.impatient_client, job_id)
    console = Console()
    if is_once or session.is_json or not console.is_terminal:
        figures = reader.read()
        session.answer(dataclasses.asdict(figures, dict_factory=_hyphenated))
        if not session.is_json:
            session.say("\n".join(plain_lines(figures)))
        return 0
    with (
        interrupted_by_sigterm(),
        keyboard(sys.stdin) as keys,
        Live(console=console, screen=True, auto_refresh=False, transient=True) as live,
    ):
        last = watch(
            reader,
            lambda figures, first, count, notice: live.update(
                screen_of(figures, console.width, first, count, notice), refresh=True
            ),
            lambda: max(1, console.height - HEAD_HEIGHT),
            keys,
            interval,
        )
    # The screen was cleared; print the final state so that it can be read.
    session.say("\n".join(plain_lines(last)))
    if not is_ended(last.state) and has_ended(session.found):
        session.note("the cluster has ended meanwhile")
    return 0


Show = Callable[[JobFigures, int, int, str], None]


def watch(
    reader: JobReader, show: Show, height: Callable[[], int], keys: Keys, interval_s: float
) -> JobFigures:
    """Show a job until it has ended or a key ends the view, and return the last figures.

    A failed request is shown in the view; after five in a row its error is raised. A cluster that ends with
    its job ends the view.
    """
    first, failures, notice = 0, 0, ""
    figures = reader.read(first, height())
    try:
        while True:
            show(figures, first, height(), notice)
            key = None if is_ended(figures.state) else keys.wait(interval_s)
            if key == "quit" or is_ended(figures.state):
                return figures
            first = _scrolled(first, key, height(), len(figures.vertices))
            try:
                figures = reader.read(first, height())
                failures, notice = 0, ""
            except ClusterEndedError:
                return figures
            except RestError as error:
                failures += 1
                if failures >= _FAILURES_MAX:
                    raise
                notice = f"no answer ({failures}): {error}"
    except KeyboardInterrupt:
        return figures


def _scrolled(first: int, key: str | None, height: int, total: int) -> int:
    steps = {
        "up": -1,
        "down": 1,
        "page up": -height,
        "page down": height,
        "home": -total,
        "end": total,
    }
    return max(0, min(first + steps.get(key or "", 0), total - height))


def _hyphenated(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of figures under hyphenated keys, as in other JSON documents."""
    return {key.replace("_", "-"): value for key, value in fields}
