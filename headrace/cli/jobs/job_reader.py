"""JobReader: asks a cluster for the figures of one job, of as many of its vertices as are looked at."""

from typing import Any

from headrace.cli.figures import duration_text
from headrace.cli.jobs.cluster_command import is_ended
from headrace.cli.jobs.exceptions import message_of, place_of
from headrace.cli.jobs.job_figures import (
    METRICS,
    JobFigures,
    ShownCheckpoints,
    VertexFigures,
    checkpoint_figures,
    vertex_figures,
)
from headrace.core.error_text import on_one_line, without_controls
from headrace.metrics.cluster_names import NUM_RESTARTS
from headrace.rest.client import RestClient, path_of
from headrace.rest.client_errors import RestRefusedError

_NOT_FOUND = 404
_TROUBLED = ("FAILING", "FAILED", "RESTARTING")


class JobReader:
    """Reads a job again and again."""

    def __init__(self, client: RestClient, job_id: str) -> None:
        self._client = client
        self._job_id = job_id

    def read(self, first: int = 0, count: int | None = None) -> JobFigures:
        """Return the figures of the job; metrics are those of `count` vertices from `first` on, None: of all."""
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
                where = str(held["function"]) or "code that no stack names"
                text = (
                    f"TaskManager {each['id']} does not answer: its interpreter lock is held for "
                    f"{duration_text(int(held['duration']))} in {where}"
                )
                return without_controls(on_one_line(text))
        return ""

    def _if_there(self, path: str, **query: object) -> Any:
        """Return an answer; None where there is nothing to tell, as without checkpoints."""
        try:
            return self._client.get(path, **query)
        except RestRefusedError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
