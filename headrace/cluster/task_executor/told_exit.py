"""ToldExit: says why a TaskManager's process ends when a function of a job calls `os._exit`, with the code and place.

The kernel tells the exit code to the parent alone, and Spark's forking daemon does not listen.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Final, NoReturn

_OWN_PACKAGE: Final = "headrace."


class ToldExit:
    """Stands in the place of `os._exit` within its block, in a process of the TaskManager's own.

    `tell(reason)` returns once the reason has been sent, or cannot be. Calls of Headrace itself, of forks of this
    process and of the threads named in `silent_threads` end the process as ever.
    """

    def __init__(self, tell: Callable[[str], None], silent_threads: tuple[str, ...]) -> None:
        self._tell: Final = tell
        self._silent_threads: Final = silent_threads
        self._pid: Final = os.getpid()
        self._exit: Final = os._exit

    def __enter__(self) -> "ToldExit":
        os._exit = self
        return self

    def __exit__(self, *_: object) -> None:
        os._exit = self._exit

    def __call__(self, status: int) -> NoReturn:
        """End the process, after a word to the driver where a function of a job calls."""
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        if (
            os.getpid() == self._pid
            and not str(caller.f_globals.get("__name__", "")).startswith(_OWN_PACKAGE)
            and threading.current_thread().name not in self._silent_threads
        ):
            with contextlib.suppress(Exception):
                self._tell(
                    f"os._exit({status}) was called in {caller.f_code.co_name} "
                    f"({caller.f_code.co_filename}:{caller.f_lineno})"
                )
        self._exit(status)
