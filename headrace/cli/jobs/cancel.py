"""`headrace cancel`: ends a job without a savepoint, or, as in Flink, with one."""

from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession
from headrace.cli.jobs.savepoint_options import format_option
from headrace.rest.client import path_of

_HELP: Final = """\
Cancel a job, without waiting until it has ended.

`headrace stop` ends a job with a savepoint, from which it can continue; -s does so too, but is deprecated, as in Flink.

\b
Try it:
  headrace cancel 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
  headrace cancel -m 127.0.0.1:8082 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
"""


@click.command(cls=ClusterCommand, help=_HELP)
@click.option(
    "-s",
    "--withSavepoint",
    "--with-savepoint",
    "savepoint",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Deprecated: take a savepoint first, in DIR or the configured directory.",
)
@format_option
@click.argument("job_id", type=JOB_ID, metavar="JOB_ID", required=False)
@click.pass_obj
def cancel(
    session: ClusterSession, savepoint: str | None, format_type: str, job_id: str | None
) -> int:
    """Cancel a job; the help text is `_HELP`."""
    context = click.get_current_context()
    if savepoint and job_id is None:
        # `-s <job id>`: the word after -s is not a directory.
        savepoint, job_id = "", JOB_ID.convert(savepoint, None, context)
    if job_id is None:
        raise click.UsageError("Missing JobID. Specify a JobID to cancel a job.", context)
    if savepoint is None:
        client = session.client
        session.say(f"Cancelling job {job_id}.")
        client.patch(path_of("jobs", job_id), mode="cancel")
        session.say(f"Cancelled job {job_id}.")
        session.answer({"job-id": job_id})
        return 0
    session.say(
        'DEPRECATION WARNING: Cancelling a job with savepoint is deprecated. Use "stop" instead.'
    )
    place = (
        f"with {format_type} savepoint to {savepoint}."
        if savepoint
        else f"with {format_type} savepoint to default savepoint directory."
    )
    session.say(f"Cancelling job {job_id} {place}")
    body: dict[str, Any] = {"cancel-job": True, "formatType": format_type}
    if savepoint:
        body["target-directory"] = savepoint
    location = session.operate(path_of("jobs", job_id, "savepoints"), body)["location"]
    session.say(f"Cancelled job {job_id}. Savepoint stored in {location}.")
    session.answer({"job-id": job_id, "location": location})
    return 0
