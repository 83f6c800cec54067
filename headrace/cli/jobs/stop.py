"""`headrace stop`: ends a job with a savepoint."""

from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession
from headrace.cli.jobs.savepoint_options import (
    begin_detached,
    detached_option,
    format_option,
)
from headrace.rest.client import path_of

_HELP: Final = """\
Stop a job with a savepoint: its sources end, everything is committed, and the job is FINISHED.

A later version of the program continues from there with `headrace run -s PATH`.

\b
Try it:
  headrace stop 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
  headrace stop -p s3://bucket/savepoints 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
  headrace stop --drain 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e       ends the job for good: event-time windows fire
"""


@click.command(cls=ClusterCommand, help=_HELP)
@click.option(
    "-p",
    "--savepointPath",
    "--savepoint-path",
    "directory",
    metavar="DIR",
    help="Directory of the savepoint (default: execution.checkpointing.savepoint-dir of the cluster).",
)
@click.option(
    "-d",
    "--drain",
    "is_drained",
    is_flag=True,
    help="End the job for good: windows and timers in event time fire before the savepoint; no job can start from it.",
)
@format_option
@detached_option
@click.argument("job_id", type=JOB_ID, metavar="JOB_ID", required=False)
@click.pass_obj
def stop(
    session: ClusterSession,
    directory: str | None,
    is_drained: bool,
    format_type: str,
    is_detached: bool,
    job_id: str | None,
) -> int:
    """Stop a job; the help text is `_HELP`."""
    context = click.get_current_context()
    if job_id is None and directory is not None:
        # `-p <job id>`, as Flink takes it.
        directory, job_id = None, JOB_ID.convert(directory, None, context)
    if job_id is None:
        raise click.UsageError("Missing JobID. Specify a JobID to stop a job.", context)
    verb = "Draining" if is_drained else "Suspending"
    session.find_cluster()
    session.say(f'{verb} job "{job_id}" with a {format_type} savepoint.')
    session.say(f"Triggering stop-with-savepoint for job {job_id}.")
    body: dict[str, Any] = {"drain": is_drained, "formatType": format_type}
    if directory is not None:
        body["targetDirectory"] = directory
    path = path_of("jobs", job_id, "stop")
    if is_detached:
        return begin_detached(session, job_id, path, body, "stop-with-savepoint", directory)
    session.say("Waiting for response...")
    results = path_of("jobs", job_id, "savepoints")
    location = session.operate(path, body, results)["location"]
    session.say(f"Savepoint completed. Path: {location}")
    session.answer({"job-id": job_id, "location": location})
    return 0
