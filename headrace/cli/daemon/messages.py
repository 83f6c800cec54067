"""Instructions for a daemon, and its report: it and the command that starts it send them as JSON on pipes."""

import msgspec


class RunProgram(msgspec.Struct, frozen=True, tag=True):
    """Run a program with its arguments in a cluster of its own."""

    program: str
    arguments: tuple[str, ...] = ()


class RunSession(msgspec.Struct, frozen=True, tag=True):
    """Be a session of this name."""

    name: str


class Instructions(msgspec.Struct, frozen=True):
    """All that a daemon is told, on its standard input.

    `report_descriptor` is where it writes its report. `log_folder` is made for it, with `console` in it, to which its
    standard output and error go.
    """

    duty: RunProgram | RunSession
    settings: dict[str, str]
    report_descriptor: int
    log_folder: str
    is_verbose: bool = False


class Report(msgspec.Struct, frozen=True):
    """The start has succeeded, or failed with the error that `failure` describes, a line each."""

    failure: tuple[str, ...] = ()
    address: str = ""
    """Address of the REST endpoint."""
    connection_file: str = ""
    master: str = ""
    job_id: str = ""
    """The first job of a program; empty where it has ended without one."""
    exit_code: int | None = None
    """Exit code of a program that has ended already."""
