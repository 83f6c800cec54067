"""Instructions for a daemon, and its report, which it and the command that starts it exchange as JSON on pipes.

Reporter sends the report on the start, once.
"""

import os

import msgspec

from headrace.client.deployed_cluster import DeployedCluster
from headrace.client.program import Program
from headrace.core.error_text import describe, wants_details
from headrace.core.errors import ErrorDomain, HeadraceError


class RunProgram(msgspec.Struct, frozen=True, tag=True):
    """Run a program in a cluster of its own.

    It has started when its first job was accepted; a standby, which needs high availability, when it waits or leads.
    """

    program: Program
    is_standby: bool = False
    is_supervised: bool = False
    """True if the daemon supervises the driver, which is another daemon, and restarts it."""

    @property
    def name(self) -> str:
        """Return the name of its cluster."""
        return self.program.name


class RunSession(msgspec.Struct, frozen=True, tag=True):
    """Run a session of this name. A standby has started when it has seen the leader; others when they lead."""

    name: str
    is_standby: bool = False
    is_supervised: bool = False
    """True if the daemon supervises the session, which is another daemon, and restarts it."""


class RunJobCluster(msgspec.Struct, frozen=True, tag=True):
    """Run a cluster of this name for one job, which the starting process submits over REST."""

    name: str


class Instructions(msgspec.Struct, frozen=True):
    """Instructions for a daemon, which it reads from its standard input.

    The daemon writes its report to `report_descriptor`. The starting process creates `log_folder` with the file
    `jobmanager.console.out`, which receives the daemon's standard output and error.
    """

    duty: RunProgram | RunSession | RunJobCluster
    settings: dict[str, str]
    report_descriptor: int
    log_folder: str
    is_verbose: bool = False

    def to_json(self) -> bytes:
        """Return the instructions as JSON, with a path as its text."""
        return msgspec.json.encode(self, enc_hook=str)

    @classmethod
    def from_json(cls, content: bytes) -> "Instructions":
        """Read the output of `to_json`. Raises one of DECODE_ERRORS."""
        return msgspec.json.decode(content, type=cls, dec_hook=lambda kind, text: kind(text))


class Report(msgspec.Struct, frozen=True):
    """Report that a start has succeeded with a cluster, or failed; `failure` has the lines of the error."""

    cluster: DeployedCluster = DeployedCluster()
    failure: tuple[str, ...] = ()
    is_name_taken: bool = False
    """True if the start failed because another cluster took the name meanwhile."""
    exit_code: int | None = None
    """Exit code of a program that has ended already."""


class StarterGoneError(HeadraceError):
    """Raised if the command that started a daemon ended before the daemon could report to it."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self) -> None:
        super().__init__(
            "the command that started this daemon has ended before the daemon could report to it: the daemon ends too"
        )


class Reporter:
    """Sends the report to the starting process; children of this process do not inherit the pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor: int | None = descriptor

    @property
    def is_open(self) -> bool:
        """Return whether nothing was reported yet."""
        return self._descriptor is not None

    def tell(self, report: Report) -> None:
        """Send the report, unless one was sent before. StarterGoneError."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            with open(descriptor, "wb") as out:
                out.write(msgspec.json.encode(report) + b"\n")
        except BrokenPipeError as error:
            raise StarterGoneError from error

    def tell_failure(self, error: BaseException, *, is_name_taken: bool = False) -> None:
        """Report that the start has failed with this error, unless a report was sent before. StarterGoneError."""
        failure = tuple(describe(error, wants_details=wants_details()))
        self.tell(Report(failure=failure, is_name_taken=is_name_taken))
