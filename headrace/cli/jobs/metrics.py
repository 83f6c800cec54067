"""`headrace metrics`: shows metrics of a job, a vertex, a subtask, a TaskManager or the JobManager."""

import fnmatch
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession
from headrace.rest.client import RestClient, path_of

_NAMES_LENGTH_MAX: Final = 3_000
"""Characters of names in one request, so that its URL stays short enough for every server and proxy."""
_AGGREGATES: Final = ("min", "max", "avg", "sum", "skew")
_HELP: Final = """\
Print metrics under Flink's names.

Without an option, shows those of a job; --vertex shows min, max, average, sum and skew over its subtasks. A vertex is
named by its id, its number, or a part of its name. PATTERN is a part of a metric's name, or has wildcards.

\b
Try it:
  headrace metrics                                       of the only running job
  headrace metrics --vertex map -g busy -g 'numRecords*'
  headrace metrics --vertex 2 --subtask 0 -g watermark
  headrace metrics --taskmanager 1 -g memory
  headrace metrics --of-jobmanager --json
"""


@click.command(cls=ClusterCommand, help=_HELP)
@click.option(
    "--vertex", metavar="VERTEX", help="Metrics of one vertex, aggregated over its subtasks."
)
@click.option("--subtask", type=click.IntRange(min=0), help="Metrics of one subtask of the vertex.")
@click.option(
    "--taskmanager", metavar="TASKMANAGER", help="Metrics of a TaskManager, by id or number."
)
@click.option("--of-jobmanager", "of_job_manager", is_flag=True, help="Metrics of the JobManager.")
@click.option(
    "-g",
    "--get",
    "patterns",
    metavar="PATTERN",
    multiple=True,
    help="Show only metrics with matching names.",
)
@click.argument("job_id", type=JOB_ID, metavar="[JOB_ID]", required=False)
@click.pass_obj
def metrics(
    session: ClusterSession,
    vertex: str | None,
    subtask: int | None,
    taskmanager: str | None,
    of_job_manager: bool,
    patterns: tuple[str, ...],
    job_id: str | None,
) -> int:
    """Print metrics; the help text is `_HELP`."""
    if subtask is not None and vertex is None:
        raise click.UsageError("--subtask needs --vertex")
    if sum((vertex is not None, taskmanager is not None, of_job_manager)) > 1:
        raise click.UsageError("--vertex, --taskmanager and --of-jobmanager cannot be combined")
    if of_job_manager:
        path = "/jobmanager/metrics"
    elif taskmanager is not None:
        path = path_of("taskmanagers", session.task_manager_named(taskmanager), "metrics")
    else:
        job_id = session.job_named(job_id)
        path = path_of("jobs", job_id, "metrics")
        if vertex is not None:
            vertex_id = session.vertex_named(job_id, vertex)["id"]
            parts = (
                ["subtasks", "metrics"]
                if subtask is None
                else ["subtasks", str(subtask), "metrics"]
            )
            path = path_of("jobs", job_id, "vertices", vertex_id, *parts)
    found = read_metrics(session.client, path, patterns)
    if not found and job_id is not None:
        # As in Flink, an unknown job has no metrics; only its page is an error.
        session.client.get(path_of("jobs", job_id))
    session.answer({"metrics": found})
    if not session.is_json:
        session.say("\n".join(metric_lines(found)) or "No metrics.")
    return 0


def read_metrics(client: RestClient, path: str, patterns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the metrics at a route whose names fit one of the patterns, or all, by name."""
    names = sorted({str(one["id"]) for one in client.get(path)})
    wanted = [name for name in names if not patterns or any(fits(name, one) for one in patterns)]
    found: list[dict[str, Any]] = []
    for group in _groups(wanted):
        found += client.get(path, get=",".join(group))
    return sorted(found, key=lambda one: str(one["id"]))


def fits(name: str, pattern: str) -> bool:
    """Return whether a name contains the pattern, or matches its wildcards, ignoring case."""
    if not any(sign in pattern for sign in "*?["):
        pattern = f"*{pattern}*"
    return fnmatch.fnmatchcase(name.lower(), pattern.lower())


def _groups(names: Sequence[str]) -> Iterator[list[str]]:
    group: list[str] = []
    length = 0
    for name in names:
        if group and length + len(name) > _NAMES_LENGTH_MAX:
            yield group
            group, length = [], 0
        group.append(name)
        length += len(name) + 1
    if group:
        yield group


def metric_lines(found: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each metric, with a heading if there are aggregates."""
    width = max((len(str(one["id"])) for one in found), default=0)
    if not any("min" in one for one in found):
        return [f"{one['id']:<{width}}  {one.get('value', '')}" for one in found]
    head = f"{'':<{width}}  " + "".join(f"{name:>14}" for name in _AGGREGATES)
    return [
        head.rstrip(),
        *(
            f"{one['id']:<{width}}  "
            + "".join(f"{_number(one.get(name)):>14}" for name in _AGGREGATES)
            for one in found
        ),
    ]


def _number(value: object) -> str:
    if not isinstance(value, int | float):
        return "-" if value is None else str(value)
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
