"""`headrace flamegraph`: shows what the threads of a vertex do, as a picture or as folded stacks."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import (
    JOB_ID,
    ClusterCommand,
    ClusterSession,
    JobIdType,
    is_ended,
)
from headrace.core.clock import SystemClock
from headrace.core.error_text import on_one_line
from headrace.core.errors import HostError
from headrace.core.process.flame_graph import FlameGraphNode, flame_graph_svg, folded_stacks
from headrace.rest.client import RestClient, path_of
from headrace.rest.client_errors import RestError

_POLL_S: Final = 0.5
_PATIENCE_S: Final = 60.0
_DEPTH_MAX: Final = 150
_HELP: Final = """\
Sample the threads of a vertex and write a flame graph into a file: an SVG for browsers, or folded stacks.

VERTEX is the id of a vertex, its number, or a part of its name; without JOB_ID, of the only running job. The first
request starts the sampling, which takes some seconds and ends by itself without further requests.

\b
Try it:
  headrace flamegraph map
  headrace flamegraph 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e map
  headrace flamegraph --type on_cpu -o map.svg 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e 2
  headrace flamegraph --folded -o - 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e 2 | sort -k2 -n
"""


_NOT_BEGUN: Final = ("CREATED", "SCHEDULED", "DEPLOYING")


class NoSamplesError(RestError):
    """Raised if there are no samples to draw."""


class _JobIdOrVertexType(JobIdType):
    """The first word: a job id, or the vertex if it is the only word."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value


@click.command(cls=ClusterCommand, help=_HELP)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="File to write; - for standard output (default: named after the vertex).",
)
@click.option(
    "--type",
    "kind",
    type=click.Choice(["full", "on_cpu", "off_cpu"], case_sensitive=False),
    default="full",
    show_default=True,
    help="Samples to draw: all (full), of computing threads (on_cpu), or of waiting threads (off_cpu).",
)
@click.option("--subtask", type=click.IntRange(min=0), help="Sample only this subtask.")
@click.option("--folded", "is_folded", is_flag=True, help="Write folded stacks instead of an SVG.")
@click.argument("job_id", metavar="[JOB_ID]", type=_JobIdOrVertexType())
@click.argument("vertex", metavar="VERTEX", required=False)
@click.pass_obj
def flamegraph(
    session: ClusterSession,
    output: str | None,
    kind: str,
    subtask: int | None,
    is_folded: bool,
    job_id: str,
    vertex: str | None,
) -> int:
    """Draw a flame graph; the help text is `_HELP`."""
    if vertex is None:
        vertex, job_id = job_id, session.job_named(None)
    else:
        job_id = JOB_ID.convert(job_id, None, click.get_current_context())
    found = session.vertex_named(job_id, vertex)
    name = on_one_line(str(found["name"]))
    if found.get("status") in _NOT_BEGUN:
        raise NoSamplesError(
            f"'{name}' does not run yet (it is {found['status']}): try again once it runs, as 'headrace top' shows"
        )
    if is_ended(str(found.get("status"))):
        raise NoSamplesError(
            f"'{name}' has ended (it is {found['status']}), but only running vertices can be sampled: 'headrace open' "
            "shows how busy it was over time"
        )
    path = path_of("jobs", job_id, "vertices", found["id"], "flamegraph")
    clock = SystemClock()
    session.note("sampling ...")
    root = await_samples(
        session.client,
        path,
        {"type": kind.upper(), "subtaskindex": subtask},
        clock.monotonic_ms,
        threading.Event().wait,
    )
    text = "\n".join(folded_stacks(root)) + "\n" if is_folded else flame_graph_svg(root, name)
    if output == "-" and not session.is_json:
        click.echo(text, nl=False)
        return 0
    ending = "folded" if is_folded else "svg"
    file = Path(output if output not in (None, "-") else f"flamegraph-{found['id'][:8]}.{ending}")
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise HostError(
            f"'{file}' cannot be written: {error.strerror}; name another file with -o"
        ) from error
    session.say(f"{root.value} samples of '{name}' are in {file}")
    session.answer({"file": str(file), "samples": root.value, "vertex-id": found["id"]})
    return 0


def await_samples(
    client: RestClient,
    path: str,
    query: dict[str, Any],
    now_ms: Callable[[], float],
    wait: Callable[[float], Any],
) -> FlameGraphNode:
    """Return the root frame once there are samples. NoSamplesError if there will be none, or none in time."""
    began_ms = now_ms()
    while True:
        answer = client.get_object(path, **query)
        match answer.get("endTimestamp"):
            case -1:
                raise NoSamplesError("the vertex has ended: only running vertices can be sampled")
            case -2:
                raise NoSamplesError(
                    "flame graphs are off in this cluster: start it with -D rest.flamegraph.enabled=true"
                )
            case _ if answer.get("data"):
                return node_of(answer["data"])
            case _:
                pass
        if now_ms() - began_ms > 1000 * _PATIENCE_S:
            raise NoSamplesError(
                f"there is no sample after {_PATIENCE_S:g} s: do the tasks of the vertex run (headrace top)?"
            )
        wait(_POLL_S)


def node_of(answer: dict[str, Any], depth: int = 0) -> FlameGraphNode:
    """Return the graph of a JSON node; frames deeper than 150 calls are cut off."""
    below = answer.get("children") or [] if depth < _DEPTH_MAX else []
    children = tuple(node_of(one, depth + 1) for one in below)
    return FlameGraphNode(str(answer.get("name", "?")), int(answer.get("value", 0)), children)
