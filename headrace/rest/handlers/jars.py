"""Handlers of uploaded programs (`/jars`): Flink's routes, with Python programs instead of Java archives.

Source: Flink JarUploadHandler, JarListHandler, JarPlanHandler, JarRunHandler, JarRunApplicationHandler.
"""

from typing import Annotated, Any, Final

from fastapi import Path, Query, Request

from headrace.checkpoint.options import (
    IGNORE_UNCLAIMED_STATE,
    RECOVERY_CLAIM_MODE,
    RECOVERY_PATH,
)
from headrace.core.errors import HeadraceError
from headrace.core.threads import run_in_thread
from headrace.graph.pipeline_options import PARALLELISM
from headrace.rest.cluster_view import ClusterView
from headrace.rest.handler_errors import BadRequestError
from headrace.rest.handlers.gateway import refuse_jobs
from headrace.rest.handlers.jobs import plan_model_of
from headrace.rest.handlers.parameters import ClusterParameter, Programs
from headrace.rest.models import jars as models
from headrace.rest.models.cluster import Empty
from headrace.rest.programs.form_parser import FormError, FormParser, PartBegun, boundary_of
from headrace.rest.programs.program_messages import ProgramOutcome, ProgramRequest
from headrace.rest.programs.program_runs import ProgramService
from headrace.rest.programs.uploaded_programs import Upload

_WRITE_BYTES: Final = 1 << 20
_THREAD: Final = "headrace-upload"
JarId = Annotated[str, Path(alias="jarid", max_length=500)]
"""The uploaded program that the path names."""


async def list_jars(cluster: ClusterParameter, programs: Programs) -> models.JarList:
    """List uploaded programs."""
    found = await run_in_thread(_THREAD, programs.uploaded.programs)
    return models.JarList(
        address=programs.address,
        files=[
            models.JarFile(
                id=each.program_id,
                name=each.name,
                uploaded=each.uploaded_ms,
                entry=[models.JarEntry(name=each.name, description=None)],
            )
            for each in found
        ],
    )


async def upload_jar(
    cluster: ClusterParameter, programs: Programs, request: Request
) -> models.JarUploaded:
    """Store a program: a form with one file that ends with .py, .zip or .whl."""
    refuse_jobs(cluster)
    try:
        parser = FormParser(boundary_of(request.headers.get("content-type", "")))
        upload = await _received(programs, request, parser)
    except FormError as error:
        raise BadRequestError(f"Request did not match expected format: {error}.") from error
    path = await _kept(upload.finish)
    return models.JarUploaded(filename=str(path))


async def _received(programs: ProgramService, request: Request, parser: FormParser) -> Upload:
    """Return the only file of a form, after the whole form was received."""
    upload: Upload | None = None
    waiting = bytearray()

    async def write() -> None:
        content, to = bytes(waiting), upload
        waiting.clear()
        if content and to is not None:
            await _kept(lambda: to.write(content))

    try:
        async for piece in request.stream():
            for event in parser.feed(piece):
                if isinstance(event, PartBegun):
                    if upload is not None or not event.file_name:
                        raise BadRequestError("Exactly 1 file must be sent, and nothing else.")
                    name = event.file_name
                    upload = await _kept(lambda name=name: programs.uploaded.begin(name))
                else:
                    waiting += event.content
            if len(waiting) >= _WRITE_BYTES:
                await write()
        await write()
        if upload is None or not parser.is_whole:
            raise BadRequestError("Exactly 1 file must be sent, received 0.")
        return upload
    except BaseException:
        if upload is not None:
            upload.abandon()
        raise


async def _kept(body: Any) -> Any:
    try:
        return await run_in_thread(_THREAD, body)
    except HeadraceError as error:
        raise BadRequestError(str(error)) from error


async def delete_jar(cluster: ClusterParameter, programs: Programs, jar: JarId) -> Empty:
    """Delete an uploaded program."""
    refuse_jobs(cluster)
    if not await run_in_thread(_THREAD, lambda: programs.uploaded.delete(jar)):
        raise _unknown(programs, jar)
    return Empty()


async def plan_jar(
    cluster: ClusterParameter,
    programs: Programs,
    jar: JarId,
    body: models.JarPlanRequest | None = None,
    entry_class: Annotated[str | None, Query(alias="entry-class")] = None,
    program_arg: Annotated[str | None, Query(alias="programArg")] = None,
    parallelism: Annotated[int | None, Query(ge=1)] = None,
) -> models.JarPlan:
    """Show the plan of a program's first job, without running it."""
    request = body or models.JarPlanRequest()
    outcome = await _run(
        cluster,
        programs,
        jar,
        request,
        entry_class,
        program_arg,
        _settings(request, parallelism),
        is_plan=True,
    )
    if outcome.plan is None:
        raise BadRequestError("The program has no plan.")
    return models.JarPlan(plan=plan_model_of(outcome.plan))


async def run_jar(
    cluster: ClusterParameter,
    programs: Programs,
    jar: JarId,
    body: models.JarRunRequest | None = None,
    entry_class: Annotated[str | None, Query(alias="entry-class")] = None,
    program_arg: Annotated[str | None, Query(alias="programArg")] = None,
    parallelism: Annotated[int | None, Query(ge=1)] = None,
    savepoint_path: Annotated[str | None, Query(alias="savepointPath")] = None,
    allow_non_restored_state: Annotated[bool | None, Query(alias="allowNonRestoredState")] = None,
) -> models.JarRun:
    """Run a program in a process of its own, and return its first job once the cluster has accepted it."""
    request = body or models.JarRunRequest()
    settings = _settings(request, parallelism)
    savepoint = request.savepoint_path or savepoint_path
    if savepoint:
        settings[RECOVERY_PATH.key] = savepoint
    allows = request.allow_non_restored_state
    if allow_non_restored_state if allows is None else allows:
        settings[IGNORE_UNCLAIMED_STATE.key] = "true"
    mode = request.claim_mode or request.restore_mode
    if mode:
        settings[RECOVERY_CLAIM_MODE.key] = mode
    outcome = await _run(
        cluster, programs, jar, request, entry_class, program_arg, settings, is_plan=False
    )
    return models.JarRun(jobid=outcome.job_id, application_id=outcome.job_id)


async def run_jar_as_application(
    cluster: ClusterParameter,
    programs: Programs,
    jar: JarId,
    body: models.JarRunRequest | None = None,
) -> models.JarApplication:
    """Run a program in a process of its own, as an application with the id of its first job."""
    run = await run_jar(cluster, programs, jar, body)
    return models.JarApplication(applicationid=run.jobid)


async def _run(
    cluster: ClusterView,
    programs: ProgramService,
    jar: str,
    request: models.JarPlanRequest,
    entry_class: str | None,
    program_arg: str | None,
    settings: dict[str, str],
    *,
    is_plan: bool,
) -> ProgramOutcome:
    refuse_jobs(cluster)
    program = await run_in_thread(_THREAD, lambda: programs.uploaded.find(jar))
    if program is None:
        raise _unknown(programs, jar)
    arguments = request.program_args_list
    if arguments is None:
        arguments = [one for one in (program_arg or "").split(",") if one]
    return await programs.run(
        ProgramRequest(
            str(program.path),
            tuple(arguments),
            request.entry_class or entry_class or "",
            settings,
            "" if request.job_id is None else request.job_id.lower(),
            is_plan,
        )
    )


def _settings(request: models.JarPlanRequest, parallelism: int | None) -> dict[str, str]:
    settings = dict(request.flink_configuration or {})
    wanted = request.parallelism or parallelism
    if wanted is not None:
        settings[PARALLELISM.key] = str(wanted)
    return settings


def _unknown(programs: ProgramService, jar: str) -> BadRequestError:
    return BadRequestError(f"File {jar} does not exist in {programs.uploaded.shown_folder}.")
