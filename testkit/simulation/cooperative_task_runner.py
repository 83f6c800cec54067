"""CooperativeTaskRunner: drives the loops of all tasks on one event loop, in an order that a seed decides."""

from collections.abc import Callable

from headrace.task.task_runner import Step, TaskLoop


class CooperativeTaskRunner:
    """Runs steps on an event loop, one step per turn; for the deterministic simulation.

    `schedule(delay_ms, callback)` schedules a callback on that loop.
    """

    def __init__(self, schedule: Callable[[float, Callable[[], None]], object]) -> None:
        self._schedule = schedule

    def run(self, name: str, loop: TaskLoop) -> None:
        """Schedule the first step."""
        _Driver(loop, self._schedule).start()


class _Driver:
    """Keeps at most one immediate step scheduled per task; late timer steps are harmless."""

    def __init__(
        self, loop: TaskLoop, schedule: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._loop = loop
        self._schedule = schedule
        self._is_scheduled = False
        self._is_done = False

    def start(self) -> None:
        self._loop.mailbox.set_wake_hook(self._step_soon)
        self._step_soon()

    def _step_soon(self) -> None:
        if not self._is_scheduled and not self._is_done:
            self._is_scheduled = True
            self._schedule(0, self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self._step()

    def _step(self) -> None:
        if self._is_done:
            return
        match self._loop.step():
            case Step.AGAIN:
                self._step_soon()
            case Step.WAIT:
                delay_ms = self._loop.delay_to_next_timer_ms()
                if delay_ms is not None:
                    self._schedule(delay_ms, self._step)
            case Step.DONE:
                self._is_done = True
