"""Shapes of uploaded programs. Source: Flink JarListInfo, JarUploadResponseBody, JarRunRequestBody."""

from typing import Literal

from pydantic import Field

from headrace.rest.models.base_models import WHOLE_ID, CamelModel, RequestedBoolean, SnakeModel
from headrace.rest.models.jobs import Plan


class JarEntry(SnakeModel):
    """An entry point of a program."""

    name: str
    description: str | None


class JarFile(SnakeModel):
    """An uploaded program. `uploaded`: epoch milliseconds."""

    id: str
    name: str
    uploaded: int
    entry: list[JarEntry]


class JarList(SnakeModel):
    """All uploaded programs, the newest first."""

    address: str
    files: list[JarFile]


class JarUploadForm(SnakeModel):
    """A form with one part, whose file name ends with .py, .zip or .whl."""

    jarfile: bytes


class JarUploaded(SnakeModel):
    """A stored program; the last part of `filename` is its id."""

    filename: str
    status: str = "success"


class JarPlanRequest(CamelModel):
    """Request to plan a program."""

    entry_class: str | None = None
    program_args_list: list[str] | None = Field(default=None, max_length=10_000)
    parallelism: int | None = Field(default=None, ge=1)
    job_id: str | None = Field(default=None, pattern=WHOLE_ID)
    flink_configuration: dict[str, str] | None = None


class JarRunRequest(JarPlanRequest):
    """Request to run a program."""

    allow_non_restored_state: RequestedBoolean | None = None
    savepoint_path: str | None = None
    claim_mode: Literal["NO_CLAIM", "CLAIM", "LEGACY"] | None = None
    restore_mode: Literal["NO_CLAIM", "CLAIM", "LEGACY"] | None = None


class JarRun(CamelModel):
    """The first job of a running program."""

    jobid: str
    application_id: str


class JarApplication(SnakeModel):
    """A running program, with the id of its first job."""

    applicationid: str


class JarPlan(SnakeModel):
    """The plan of a program's first job."""

    plan: Plan
