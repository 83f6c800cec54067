"""`headrace list`: the jobs of a cluster."""

from datetime import datetime
from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import (
    ClusterCommand,
    ClusterSession,
    is_ended,
    with_job_id,
)
from headrace.core.error_text import on_one_line

_SCHEDULED: Final = ("CREATED", "INITIALIZING")
_RUNNING_TITLE: Final = "------------------ Running/Restarting Jobs -------------------"
_SCHEDULED_TITLE: Final = "----------------------- Scheduled Jobs -----------------------"
_ENDED_TITLE: Final = "---------------------- Terminated Jobs -----------------------"
_RULE: Final = "--------------------------------------------------------------"
_HELP: Final = """\
List the jobs of a cluster: by default the running and the scheduled ones.

\b
Try it:
  headrace list                                    of the only cluster of this machine
  headrace list -a -m 127.0.0.1:8082               also those that have ended, of the cluster at this address
  headrace list --json | jq -r '.jobs[]["job-id"]'       for a program
"""

_Job = dict[str, Any]


@click.command("list", cls=ClusterCommand, help=_HELP)
@click.option(
    "-a", "--all", "is_all", is_flag=True, help="List all jobs, including those that have ended."
)
@click.option("-r", "--running", is_flag=True, help="List only running and restarting jobs.")
@click.option("-s", "--scheduled", is_flag=True, help="List only jobs that wait to run.")
@click.pass_obj
def list_command(session: ClusterSession, is_all: bool, running: bool, scheduled: bool) -> int:
    """List jobs; the help text is `_HELP`."""
    if not (is_all or running or scheduled):
        running = scheduled = True
    client = session.client
    session.say("Waiting for response...")
    jobs: list[_Job] = client.get_object("/jobs/overview").get("jobs", [])
    shown: list[_Job] = []
    for wanted, state, title, word in (
        (running, "running", _RUNNING_TITLE, "No running jobs."),
        (scheduled, "scheduled", _SCHEDULED_TITLE, "No scheduled jobs."),
        (False, "ended", _ENDED_TITLE, ""),
    ):
        if not (wanted or is_all):
            continue
        found = sorted(
            (job for job in jobs if _kind(job) == state), key=lambda job: job["start-time"]
        )
        shown += found
        if session.is_json:
            continue
        if found:
            session.say("\n".join([title, *map(job_line, found), _RULE]))
        elif word:
            session.say(word)
    session.answer({"jobs": [with_job_id(job) for job in shown]})
    return 0


def _kind(job: _Job) -> str:
    if job["state"] in _SCHEDULED:
        return "scheduled"
    return "ended" if is_ended(job["state"]) else "running"


def job_line(job: _Job) -> str:
    """Return `20.11.2026 10:31:16 : <id> : <name> (RUNNING)`, in this machine's time zone."""
    started = datetime.fromtimestamp(job["start-time"] / 1000).strftime("%d.%m.%Y %H:%M:%S")
    return f"{started} : {job['jid']} : {on_one_line(job['name'])} ({job['state']})"
