"""RecoveryWatch: observes a disturbed job, and measures the time until all tasks run again."""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headrace.api.client.job_client import JobClient
from headrace.core.lifecycle import ExecutionState
from headrace.gateways.checkpoint_statistics import CheckpointOverview

_POLL_S: Final = 0.02
_AT_WORK: Final = frozenset({ExecutionState.RUNNING, ExecutionState.FINISHED})


class RecoveryWatch:
    """Measures the time from a disturbance until every task runs again.

    `tokens()` returns the files that were left, one at each disturbance; set `client` once there is a job. Disturbances
    before everything runs again belong to the same recovery, which counts from the first. `is_recovering`: at the
    last look some task was starting, or had failed. `in_flight_bytes`: the maximum of overtaken data seen in a complete
    checkpoint.
    """

    def __init__(self, tokens: Callable[[], Sequence[Path]]) -> None:
        self._tokens = tokens
        self._accounted: set[Path] = set()
        self._was_down = False
        self.client: JobClient | None = None
        self.recoveries_s: list[float] = []
        self.is_recovering = False
        self.in_flight_bytes = 0
        self._is_over = threading.Event()

    @contextmanager
    def following(self) -> Generator[None]:
        """Observe the job while the body runs."""
        thread = threading.Thread(target=self._look_on, name="recovery-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _look_on(self) -> None:
        while not self._is_over.wait(_POLL_S):
            client = self.client
            if client is None:
                continue
            try:
                details = client.get_job_details().result(5)
            except Exception:
                continue
            states = [subtask.state for vertex in details.vertices for subtask in vertex.subtasks]
            self.look(all(state is ExecutionState.RUNNING for state in states))
            self.is_recovering = not _AT_WORK.issuperset(states)
            self.look_at_checkpoints(details.checkpoints)

    def look(self, is_running: bool) -> None:
        """Note a look at the job; `is_running`: all its tasks run."""
        new = set(self._tokens()) - self._accounted
        if not new:
            return
        self._was_down = self._was_down or not is_running
        if self._was_down and is_running:
            self.recoveries_s.append(time.time() - min(token.stat().st_ctime for token in new))
            self._accounted |= new
            self._was_down = False

    def look_at_checkpoints(self, checkpoints: CheckpointOverview) -> None:
        """Note the in-flight data of the latest complete checkpoint."""
        if checkpoints.latest_completed is not None:
            found = checkpoints.latest_completed.slowest.in_flight_bytes  # of all subtasks together
            self.in_flight_bytes = max(self.in_flight_bytes, found)
