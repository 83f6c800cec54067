"""`headrace rescale-info`: shows the parallelism of a job, free slots, and how to change the parallelism."""

from collections.abc import Sequence
from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession, is_ended
from headrace.core.error_text import on_one_line
from headrace.rest.client import path_of

_HELP: Final = """\
Show the parallelism of each vertex, its maximum, the free slots, and how to change the parallelism.

Without JOB_ID, shows the only running job.

\b
Try it:
  headrace rescale-info
  headrace rescale-info --json 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
"""


@click.command("rescale-info", cls=ClusterCommand, help=_HELP)
@click.argument("job_id", type=JOB_ID, metavar="[JOB_ID]", required=False)
@click.pass_obj
def rescale_info(session: ClusterSession, job_id: str | None) -> int:
    """Show how a job may be rescaled; the help text is `_HELP`."""
    job_id = session.job_named(job_id)
    job = session.client.get_object(path_of("jobs", job_id))
    cluster = session.client.get_object("/overview")
    vertices = [_vertex(one) for one in job.get("vertices", [])]
    session.answer(
        {
            "job-id": job_id,
            "name": job["name"],
            "slots-total": cluster.get("slots-total"),
            "slots-available": cluster.get("slots-available"),
            "vertices": vertices,
        }
    )
    if session.is_json:
        return 0
    session.say(f"{on_one_line(job['name'])} ({job['state']})")
    session.say(f"slots: {cluster.get('slots-available')} free of {cluster.get('slots-total')}")
    session.say("\n".join(_table(vertices)))
    if is_ended(job["state"]):
        session.say("The job has ended: start it again with the new parallelism (-p N).")
        return 0
    session.say(
        "A job is not rescaled while it runs: stop it with a savepoint and start it with another parallelism "
        "(headrace stop JOB_ID, headrace run -s PATH -p N)."
    )
    return 0


def _vertex(vertex: dict[str, Any]) -> dict[str, Any]:
    return {
        "vertex-id": vertex["id"],
        "name": vertex["name"],
        "parallelism": vertex["parallelism"],
        "max-parallelism": vertex.get("maxParallelism"),
    }


def _table(vertices: Sequence[dict[str, Any]]) -> list[str]:
    names = [on_one_line(one["name"]) for one in vertices]
    width = max(map(len, ["vertex", *names]))
    return [f"{'vertex':<{width}}  {'now':>6}  {'most':>6}"] + [
        f"{name:<{width}}  {one['parallelism']:>6}  {_cell(one['max-parallelism'])}"
        for name, one in zip(names, vertices, strict=True)
    ]


def _cell(value: Any) -> str:
    return f"{'-' if value is None or value == -1 else value:>6}"
