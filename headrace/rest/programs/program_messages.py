"""Messages between the driver and the process that runs an uploaded program."""

import struct
from typing import Final

import msgspec

from headrace.graph.job_plan import JobPlan

MESSAGE_LENGTH: Final = struct.Struct("!I")
"""Format of a message's length, which precedes it."""
PROCESS_MODULE: Final = "headrace.cli.uploaded_program"
"""Module that the process runs."""


class ProgramRequest(msgspec.Struct, frozen=True):
    """Driver → process: the program at `path` with its arguments and settings.

    `entry_class`: the module to run inside an archive, or Flink's PythonDriver. `job_id`: of its first job; if empty,
    one is generated. `is_plan`: only plan the program, without running a job. The request comes on the standard input
    of the process, which ends when its input ends.
    """

    path: str
    arguments: tuple[str, ...] = ()
    entry_class: str = ""
    settings: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    job_id: str = ""
    is_plan: bool = False


class ProgramOutcome(msgspec.Struct, frozen=True):
    """Process → driver: the first job was accepted, or the plan was made, or `error` says why not."""

    job_id: str = ""
    plan: JobPlan | None = None
    error: str = ""
