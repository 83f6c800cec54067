"""`headrace top`: a live view of a job."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any, Final

import click
from rich.console import Console
from rich.live import Live

from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession, is_ended
from headrace.cli.jobs.job_figures import JobFigures
from headrace.cli.jobs.job_reader import JobReader
from headrace.cli.jobs.keys import Keys, keyboard
from headrace.cli.jobs.top_view import HEAD_HEIGHT, plain_lines, screen_of
from headrace.cli.termination import interrupted_by_sigterm
from headrace.rest.client_errors import ClusterEndedError, RestError
from headrace.rest.connections import has_ended

_FAILURES_MAX: Final = 5
"""Questions in a row that may stay without an answer before the view ends."""
_HELP: Final = """\
Watch a job: how busy each vertex is, whether it is back-pressured, records a second, watermarks and their lag,
checkpoints and restarts. q or Ctrl-C ends it; arrows and PgUp, PgDn scroll.

Without JOB_ID it is the only job that runs. Where standard output is no terminal, it prints once.

\b
Try it:
  headrace top
  headrace top -i 5 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e     every 5 seconds
  headrace top --once | grep -v RUNNING
  headrace top --json | jq '.vertices[] | {name, busy, "back-pressured"}'
"""


@click.command(cls=ClusterCommand, help=_HELP)
@click.option(
    "-i",
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks.",
)
@click.option("--once", "is_once", is_flag=True, help="Print what there is, and end.")
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
    # The screen is gone; its end stays to be read.
    session.say("\n".join(plain_lines(last)))
    if not is_ended(last.state) and has_ended(session.found):
        session.note("the cluster has ended since")
    return 0


Show = Callable[[JobFigures, int, int, str], None]


def watch(
    reader: JobReader, show: Show, height: Callable[[], int], keys: Keys, interval_s: float
) -> JobFigures:
    """Show a job until it has ended or a key says so, and return what was seen last.

    A question without an answer is told in the view; after five in a row its error is raised. A cluster that ends with
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
    """Return the fields of figures under keys like those of other documents."""
    return {key.replace("_", "-"): value for key, value in fields}
