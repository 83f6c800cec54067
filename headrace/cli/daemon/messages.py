"""Instructions for a daemon, and its report: it and the command that starts it send them as JSON on pipes.

Reporter tells the command how the start went, once.
"""

import os

import msgspec

from headrace.client.deployed_cluster import DeployedCluster
from headrace.client.program import Program
from headrace.core.error_text import describe, wants_details
from headrace.core.errors import ErrorDomain, HeadraceError


class RunProgram(msgspec.Struct, frozen=True, tag=True):
    """Run a program in a cluster of its own.

    It has started when its first job was taken; a standby, which needs high availability, when it waits or leads.
    """

    program: Program
    is_standby: bool = False
    is_supervised: bool = False
    """Whether the daemon watches over the driver, which is a daemon of its own, and starts it again."""

    @property
    def name(self) -> str:
        """The name of its cluster."""
        return self.program.name


class RunSession(msgspec.Struct, frozen=True, tag=True):
    """Be a session of this name. A standby has started when it has seen who leads; others when they lead."""

    name: str
    is_standby: bool = False
    is_supervised: bool = False
    """Whether the daemon watches over the session, which is a daemon of its own, and starts it again."""


class RunJobCluster(msgspec.Struct, frozen=True, tag=True):
    """Be a cluster of this name for one job, which the starter brings over REST."""

    name: str


class Instructions(msgspec.Struct, frozen=True):
    """All that a daemon is told, on its standard input.

    `report_descriptor` is where it writes its report. `log_folder` is made by the starter, and has the file
    `jobmanager.console.out`, to which the daemon's standard output and error go.
    """

    duty: RunProgram | RunSession | RunJobCluster
    settings: dict[str, str]
    report_descriptor: int
    log_folder: str
    is_verbose: bool = False

    def to_json(self) -> bytes:
        """Return them as JSON, a path as its text."""
        return msgspec.json.encode(self, enc_hook=str)

    @classmethod
    def from_json(cls, content: bytes) -> "Instructions":
        """Read what `to_json` has made. DECODE_ERRORS."""
        return msgspec.json.decode(content, type=cls, dec_hook=lambda kind, text: kind(text))


class Report(msgspec.Struct, frozen=True):
    """The start has succeeded with a cluster, or failed with the error that `failure` describes, a line each."""

    cluster: DeployedCluster = DeployedCluster()
    failure: tuple[str, ...] = ()
    is_name_taken: bool = False
    """Whether it has failed because another cluster took the name meanwhile."""
    exit_code: int | None = None
    """Exit code of a program that has ended already."""


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

    def tell_failure(self, error: BaseException, *, is_name_taken: bool = False) -> None:
        """Tell that the start has failed with this error, unless something was told before. StarterGoneError."""
        failure = tuple(describe(error, wants_details=wants_details()))
        self.tell(Report(failure=failure, is_name_taken=is_name_taken))
