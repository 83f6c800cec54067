"""`headrace checkpoint <job id>`: takes a checkpoint of a running job; other actions look at stored checkpoints."""

from typing import Final

import click

from headrace.cli.command_table import CommandTable, Entry
from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession
from headrace.rest.client import path_of

_COMMANDS: Final = {
    "list": Entry("headrace.cli.snapshots:list_snapshots", "List the snapshots in a folder."),
    "show": Entry("headrace.cli.snapshots:show", "Show a snapshot, operator by operator."),
    "trigger": Entry(
        "headrace.cli.jobs.checkpoint:checkpoint_job",
        "Take a checkpoint of a running job; the word trigger may be omitted.",
    ),
    "verify": Entry(
        "headrace.cli.snapshots:verify", "Check that a snapshot is complete and unchanged."
    ),
}

_GROUP_HELP: Final = """\
Take a checkpoint of a running job, or look at checkpoints in files.

\b
Try it:
  headrace checkpoint 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e         now, of the configured kind
  headrace checkpoint -full 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e   full: refers to no earlier files
  headrace checkpoint list /data/checkpoints                   without a cluster
"""
_TRIGGER_HELP: Final = """\
Take a checkpoint of the job JOB_ID now, and wait until it is complete.

\b
Try it:
  headrace checkpoint 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
  headrace checkpoint -full 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
"""


@click.command("trigger", cls=ClusterCommand, help=_TRIGGER_HELP)
@click.option(
    "-full",
    "--full",
    "is_full",
    is_flag=True,
    help="Take a full checkpoint that refers to no earlier files.",
)
@click.argument("job_id", type=JOB_ID, metavar="JOB_ID", required=False)
@click.pass_obj
def checkpoint_job(session: ClusterSession, is_full: bool, job_id: str | None) -> int:
    """Take a checkpoint; the help text is `_TRIGGER_HELP`."""
    context = click.get_current_context()
    if job_id is None:
        raise click.UsageError(
            "Missing JobID. Specify a Job ID to manipulate a checkpoint.", context
        )
    session.find_cluster()
    session.say(f"Triggering checkpoint for job {job_id}.")
    session.say("Waiting for response...")
    body = {"checkpointType": "FULL" if is_full else "CONFIGURED"}
    operation = session.operate(path_of("jobs", job_id, "checkpoints"), body)
    kind = "(FULL)" if is_full else ""
    session.say(f"Checkpoint{kind} {operation['checkpointId']} for job {job_id} completed.")
    session.say("You can resume your program from this checkpoint with the run command.")
    session.answer({"job-id": job_id, "checkpoint-id": operation["checkpointId"]})
    return 0


checkpoint = CommandTable("checkpoint", table=_COMMANDS, free_word="trigger", help=_GROUP_HELP)
