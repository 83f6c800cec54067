"""`headrace savepoint <job id> [dir]`: takes a savepoint of a running job; other actions look at stored savepoints."""

from typing import Any, Final

import click

from headrace.cli.command_table import CommandTable, Entry
from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession
from headrace.cli.jobs.savepoint_options import (
    TRIGGER_ID,
    begin_detached,
    detached_option,
    format_option,
)
from headrace.rest.client import path_of

_COMMANDS: Final = {
    "dispose": Entry("headrace.cli.snapshots:dispose", "Delete a savepoint, with all its files."),
    "list": Entry("headrace.cli.snapshots:list_snapshots", "List the snapshots in a folder."),
    "show": Entry("headrace.cli.snapshots:show", "Show a snapshot, operator by operator."),
    "trigger": Entry(
        "headrace.cli.jobs.savepoint:trigger",
        "Take a savepoint of a running job; the word trigger may be omitted.",
    ),
    "verify": Entry(
        "headrace.cli.snapshots:verify", "Check that a snapshot is complete and unchanged."
    ),
}

_GROUP_HELP: Final = """\
Take a savepoint of a running job, or look at savepoints in files.

\b
Try it:
  headrace savepoint 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e                     into the configured directory
  headrace savepoint 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e s3://bucket/saved   into this one
  headrace savepoint -d s3://bucket/saved/savepoint-4f1c2d-0a9b8e7c6d5f   let the cluster delete one
  headrace savepoint list /data/savepoints                                without a cluster
"""
_TRIGGER_HELP: Final = """\
Take a savepoint of the job JOB_ID in DIRECTORY, and wait until it is complete; the job keeps running.

\b
Try it:
  headrace savepoint 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
  headrace savepoint --type native 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e s3://bucket/saved
  headrace savepoint -detached 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e /data/savepoints
  headrace savepoint --result 0a9b8e7c6d5f4e3d2c1b0a9f8e4f1c2d 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
  headrace savepoint --dispose /data/savepoints/savepoint-4f1c2d-0a9b8e7c6d5f

DIRECTORY and PATH are resolved by the cluster. The result of a savepoint, or of `headrace stop`, can be read for five
minutes after its end (rest.async.store-duration); the terminal and the log of the driver name the savepoint, too.
"""


@click.command(cls=ClusterCommand, help=_TRIGGER_HELP)
@click.option(
    "-d",
    "--dispose",
    "disposed",
    metavar="PATH",
    help="Let the cluster delete this savepoint instead.",
)
@click.option(
    "-j", "--jarfile", metavar="FILE", hidden=True, help="Accepted for Flink's scripts and ignored."
)
@click.option(
    "--result",
    "asked_id",
    type=TRIGGER_ID,
    metavar="TRIGGER_ID",
    help="Print the result of this savepoint or stop of the job instead; with -detached, do not wait for its end.",
)
@format_option
@detached_option
@click.argument("job_id", type=JOB_ID, metavar="JOB_ID", required=False)
@click.argument("directory", required=False)
@click.pass_obj
def trigger(
    session: ClusterSession,
    disposed: str | None,
    jarfile: str | None,
    asked_id: str | None,
    format_type: str,
    is_detached: bool,
    job_id: str | None,
    directory: str | None,
) -> int:
    """Take a savepoint, or let the cluster delete one; the help text is `_TRIGGER_HELP`."""
    if disposed is not None:
        return _dispose(session, disposed)
    context = click.get_current_context()
    if job_id is None:
        raise click.UsageError("Missing JobID. Specify a Job ID to trigger a savepoint.", context)
    if asked_id is not None:
        return _tell_result(session, job_id, asked_id, is_waited_for=not is_detached)
    session.find_cluster()
    session.say(f"Triggering savepoint for job {job_id}.")
    body: dict[str, Any] = {"cancel-job": False, "formatType": format_type}
    if directory is not None:
        body["target-directory"] = directory
    path = path_of("jobs", job_id, "savepoints")
    if is_detached:
        return begin_detached(session, job_id, path, body, "manual savepoint", directory)
    session.say("Waiting for response...")
    location = session.operate(path, body)["location"]
    return _tell_completed(session, job_id, location)


def _tell_result(
    session: ClusterSession, job_id: str, trigger_id: str, *, is_waited_for: bool
) -> int:
    path = path_of("jobs", job_id, "savepoints", trigger_id)
    if not is_waited_for and session.client.get_object(path)["status"]["id"] != "COMPLETED":
        session.say(f"Savepoint {trigger_id} of job {job_id} is in progress.")
        session.answer({"job-id": job_id, "request-id": trigger_id, "status": "IN_PROGRESS"})
        return 0
    location = session.client.result_of(path, trigger_id)["location"]
    return _tell_completed(session, job_id, location)


def _tell_completed(session: ClusterSession, job_id: str, location: str) -> int:
    session.say(f"Savepoint completed. Path: {location}")
    session.say("You can resume your program from this savepoint with the run command.")
    session.answer({"job-id": job_id, "location": location})
    return 0


def _dispose(session: ClusterSession, path: str) -> int:
    session.find_cluster()
    session.say(f"Disposing savepoint '{path}'.")
    session.say("Waiting for response...")
    session.operate("/savepoint-disposal", {"savepoint-path": path})
    session.say(f"Savepoint '{path}' disposed.")
    session.answer({"location": path})
    return 0


savepoint = CommandTable("savepoint", table=_COMMANDS, free_word="trigger", help=_GROUP_HELP)
