"""Reporter: tells the command that started a daemon how the start went, once."""

import os

import msgspec

from headrace.cli.daemon.messages import Report
from headrace.core.error_text import describe, wants_details
from headrace.core.errors import ErrorDomain, HeadraceError


class StarterGoneError(HeadraceError):
    """Nobody heard that the daemon has started: whoever wanted it was ended meanwhile, and knows nothing of it."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self) -> None:
        super().__init__(
            "the command that started this daemon has ended before it was told: the daemon ends too"
        )


class Reporter:
    """The way back, which children of this process do not inherit."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor: int | None = descriptor

    @property
    def is_open(self) -> bool:
        """Whether nothing was told yet."""
        return self._descriptor is not None

    def tell(self, report: Report) -> None:
        """Tell it, unless something was told before. StarterGoneError."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            with open(descriptor, "wb") as out:
                out.write(msgspec.json.encode(report) + b"\n")
        except BrokenPipeError as error:
            raise StarterGoneError from error

    def tell_failure(self, error: BaseException) -> None:
        """Tell that the start has failed with this error, unless something was told before. StarterGoneError."""
        self.tell(Report(tuple(describe(error, wants_details=wants_details()))))
