"""PostingIo: runs file I/O of a simulation on its one thread."""

from collections.abc import Callable


class PostingIo:
    """Runs jobs through a function such as a transport's `post`: for a simulation, which has one thread."""

    is_concurrent = False

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post

    def submit(self, job: Callable[[], None]) -> None:
        self._post(job)

    def close(self) -> None:
        """Do nothing: the simulation's loop runs posted jobs."""
