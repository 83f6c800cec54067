"""An I/O pool whose jobs run when a test lets them."""

from collections import deque
from collections.abc import Callable


class HeldIo:
    """Says that its jobs run beside their submitter, and keeps them until they are let run."""

    is_concurrent = True

    def __init__(self) -> None:
        self.jobs: deque[Callable[[], None]] = deque()

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def run_one(self) -> None:
        self.jobs.popleft()()

    def close(self) -> None:
        while self.jobs:
            self.run_one()
