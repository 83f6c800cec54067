"""TaskRunner: drives the loops of tasks, each on a thread of its own.

The simulation drives them by single steps on its own event loop instead.
"""

import enum
from typing import Protocol

from headrace.core.threads import start_thread
from headrace.task.mailbox import Mailbox


class Step(enum.Enum):
    """Requests of a step of the loop to its driver."""

    AGAIN = "AGAIN"
    WAIT = "WAIT"
    DONE = "DONE"


class TaskLoop(Protocol):
    """The loop of one task, as its runner sees it."""

    mailbox: Mailbox

    def step(self) -> Step:
        """Do a bounded piece of work; never raises."""
        ...

    def delay_to_next_timer_ms(self) -> float | None:
        """After WAIT: when to step again without a wake-up; None: only when woken."""
        ...


class TaskRunner(Protocol):
    """Drives loops."""

    def run(self, name: str, loop: TaskLoop) -> None:
        """Start driving `loop`; returns at once."""
        ...


class ThreadTaskRunner:
    """One daemon thread per task: what TaskManagers use."""

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
