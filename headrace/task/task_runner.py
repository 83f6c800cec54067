"""TaskRunner: drives the loops of tasks, each on a thread of its own.

The simulation drives them by single steps on its own event loop instead.
"""

import enum
from typing import Protocol

from headrace.core.threads import start_thread
from headrace.task.mailbox import Mailbox


class Step(enum.Enum):
    """Request of a step of the loop to its driver."""

    AGAIN = "AGAIN"
    WAIT = "WAIT"
    DONE = "DONE"


class TaskLoop(Protocol):
    """Loop of one task, as seen by its runner."""

    mailbox: Mailbox

    def step(self) -> Step:
        """Do a bounded amount of work; never raises."""
        ...

    def delay_to_next_timer_ms(self) -> float | None:
        """Return the ms after which to step again after WAIT; None to step only when woken."""
        ...


class TaskRunner(Protocol):
    """Drives task loops."""

    def run(self, name: str, loop: TaskLoop) -> None:
        """Start driving `loop` and return at once."""
        ...


class ThreadTaskRunner:
    """Runs each task on a daemon thread of its own, as in TaskManagers."""

    def run(self, name: str, loop: TaskLoop) -> None:
        """Start the task's thread."""

        def body() -> None:
            while True:
                match loop.step():
                    case Step.AGAIN:
                        continue
                    case Step.WAIT:
                        loop.mailbox.wait(loop.delay_to_next_timer_ms())
                    case Step.DONE:
                        return

        start_thread(name, body)
