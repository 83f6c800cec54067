"""Answers about an ended job: every archived route, for all vertices, subtasks, attempts and checkpoints.

The handlers of requests render them, so that an archive answers as the cluster did.
"""

import inspect
from collections.abc import Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from headrace.gateways.ended_job import EndedJob
from headrace.rest.handler_errors import HandlerError
from headrace.rest.history.ended_job_view import EndedJobView
from headrace.rest.rest_route import RestRoute
from headrace.rest.routes import ROUTES

OVERVIEW_PATH: Final = "/jobs/overview"
_PARAMETERS: Final = {
    "vertexid": "vertex",
    "subtaskindex": "subtask_index",
    "attempt": "attempt",
    "checkpointid": "checkpoint_id",
}
"""Names of handlers' parameters, by the names in paths."""
_CHECKPOINT: Final = "checkpointid"

_Values = dict[str, Any]
"""Values of a path's parameters by name."""


@dataclass(frozen=True, slots=True)
class ArchivedPath:
    """A path in an archive, with the values of its parameters."""

    path: str
    route: RestRoute
    values: _Values


def archived_routes() -> tuple[RestRoute, ...]:
    """Return the routes that an archive answers."""
    return tuple(route for route in ROUTES if route.is_archived)


def archived_answers(
    view: EndedJobView, paths: Iterable[ArchivedPath]
) -> Iterator[tuple[str, bytes]]:
    """Yield paths and their JSON. A path whose answer is an error is left out, as in Flink."""
    job_id = view.job.details.job_id
    known = {
        route.path: inspect.signature(route.handler).parameters.keys()
        for route in archived_routes()
    }
    for each in paths:
        arguments: dict[str, Any] = {"cluster": view, "job": job_id}
        for name, value in each.values.items():
            arguments[_PARAMETERS[name]] = value
        taken = known[each.route.path]
        chosen = {name: value for name, value in arguments.items() if name in taken}
        try:
            found = _value_of(each.route.handler(**chosen))
        except HandlerError:
            continue
        yield each.path, each.route.written(found)


def archived_paths(job: EndedJob) -> list[ArchivedPath]:
    """Return the paths that an archive of a job answers, sorted."""
    job_id = job.details.job_id.hex()
    found: list[ArchivedPath] = []
    combinations: dict[tuple[str, ...], list[_Values]] = {}
    for route in archived_routes():
        names = tuple(name for name in route.parameters if name != "jobid")
        if names not in combinations:
            combinations[names] = _combinations(job, names)
        for values in combinations[names]:
            shown = {name: _shown(value) for name, value in values.items()}
            path = route.path.format(jobid=job_id, **shown)
            found.append(ArchivedPath(path, route, values))
    return sorted(found, key=lambda each: each.path)


def _combinations(job: EndedJob, names: tuple[str, ...]) -> list[_Values]:
    if not names:
        return [{}]
    if names[0] == _CHECKPOINT:
        return [
            {_CHECKPOINT: each.checkpoint.checkpoint_id, **values}
            for each in job.checkpoints
            for values in (
                [{}]
                if len(names) == 1
                else [{"vertexid": task.task.vertex_id} for task in each.tasks]
            )
        ]
    found: list[_Values] = []
    for vertex in job.details.vertices:
        of_vertex: _Values = {"vertexid": vertex.vertex_id}
        if len(names) == 1:
            found.append(of_vertex)
            continue
        for subtask in vertex.subtasks:
            of_subtask = of_vertex | {"subtaskindex": subtask.subtask_index}
            if len(names) == 2:
                found.append(of_subtask)
                continue
            found.extend(
                of_subtask | {"attempt": attempt.attempt_number}
                for attempt in (subtask, *subtask.earlier_attempts)
            )
    return found


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, int) else value.hex()


def _value_of(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a handler, which never waits, as the view answers at once."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise AssertionError("a handler of an archived route must not wait")
