"""`headrace rescale-info`: how far a job may be rescaled, and how it was."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession
from headrace.rest.client import path_of
from headrace.rest.client_errors import RestRefusedError

_NO_ADAPTIVE_SCHEDULER: Final = (404, 500, 503)
_HELP: Final = """\
Show parallelism and bounds of each vertex, free slots, and how often the job was rescaled.

Without JOB_ID, those of the only job that runs.

\b
Try it:
  headrace rescale-info
  headrace rescale-info --json 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
"""


@click.command("rescale-info", cls=ClusterCommand, help=_HELP)
@click.argument("job_id", type=JOB_ID, metavar="[JOB_ID]", required=False)
@click.pass_obj
def rescale_info(session: ClusterSession, job_id: str | None) -> int:
    """Show it; the help text is `_HELP`."""
    job_id = session.job_named(job_id)
    client = session.client
    job = client.get_object(path_of("jobs", job_id))
    cluster = client.get_object("/overview")
    requirements = _if_adaptive(session, path_of("jobs", job_id, "resource-requirements"))
    overview = _if_adaptive(session, path_of("jobs", job_id, "rescales", "overview"))
    vertices = [_vertex(one, requirements) for one in job.get("vertices", [])]
    session.answer(
        {
            "job-id": job_id,
            "name": job["name"],
            "scheduler": job.get("schedulerType"),
            "is-rescalable": requirements is not None,
            "slots-total": cluster.get("slots-total"),
            "slots-available": cluster.get("slots-available"),
            "vertices": vertices,
            "rescales": overview,
        }
    )
    if session.is_json:
        return 0
    session.say(f"{job['name']} ({job['state']}), scheduler {job.get('schedulerType', 'unknown')}")
    session.say(f"slots: {cluster.get('slots-available')} free of {cluster.get('slots-total')}")
    session.say("\n".join(_table(vertices)))
    if requirements is None:
        session.say(
            "This job is not rescaled while it runs: stop it with a savepoint and start it with another parallelism "
            "(headrace stop JOB_ID, headrace run -s PATH -p N)."
        )
    if overview is not None:
        session.say("\n".join(_history(overview)))
    return 0


def _if_adaptive(session: ClusterSession, path: str) -> Any:
    """Return the answer of a route that the adaptive scheduler alone has; None from others."""
    try:
        return session.client.get(path)
    except RestRefusedError as error:
        if error.status in _NO_ADAPTIVE_SCHEDULER:
            return None
        raise


def _vertex(vertex: dict[str, Any], requirements: Any) -> dict[str, Any]:
    bounds = (requirements or {}).get(vertex["id"], {}).get("parallelism", {})
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "parallelism": vertex["parallelism"],
        "max-parallelism": vertex.get("maxParallelism"),
        "lower-bound": bounds.get("lowerBound"),
        "upper-bound": bounds.get("upperBound"),
    }


def _table(vertices: Sequence[dict[str, Any]]) -> list[str]:
    width = max((len(one["name"]) for one in vertices), default=0)
    width = max(width, len("vertex"))
    head = f"{'vertex':<{width}}  {'now':>6}  {'lower':>6}  {'upper':>6}  {'most':>6}"
    return [head] + [
        f"{one['name']:<{width}}  {_cell(one['parallelism'])}  {_cell(one['lower-bound'])}  "
        f"{_cell(one['upper-bound'])}  {_cell(one['max-parallelism'])}"
        for one in vertices
    ]


def _cell(value: Any) -> str:
    return f"{'-' if value is None or value == -1 else value:>6}"


def _history(overview: dict[str, Any]) -> list[str]:
    counts = overview.get("rescalesCounts") or {}
    lines = ["rescales: " + ", ".join(f"{count} {_words(kind)}" for kind, count in counts.items())]
    for kind, last in (overview.get("latest") or {}).items():
        if last:
            at = datetime.fromtimestamp(last.get("startTimestampInMillis", 0) / 1000)
            reason = last.get("terminatedReason") or last.get("terminalState") or "in progress"
            lines.append(
                f"last {_words(kind)}: {at.strftime('%d.%m.%Y %H:%M:%S')}, {last.get('triggerCause')}, {reason}"
            )
    return lines


def _words(name: str) -> str:
    return "in progress" if name == "inProgress" else name
