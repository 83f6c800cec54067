"""`headrace run -d`: has a daemon run a program, and says how to follow it once its first job was taken."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from headrace.cli.daemon.console_file import last_lines
from headrace.cli.daemon.daemon_process import DaemonFailedError, DaemonProcess
from headrace.cli.daemon.messages import Report, RunProgram
from headrace.cli.logs import print_error
from headrace.cli.options import print_json

_PRINTED_LINES: Final = 1_000


def run_detached(
    duty: RunProgram,
    settings: dict[str, str],
    *,
    is_verbose: bool,
    is_json: bool = False,
) -> int:
    """Start it, and return 0 once its first job runs, or it stands by; else the exit code with which it has ended.

    `is_json`: standard output has one document and nothing else.
    """
    daemon = DaemonProcess(duty, settings, is_verbose=is_verbose)
    try:
        report = daemon.report()
    except DaemonFailedError as error:
        code = print_error(error.lines)
        if is_json:
            print_json({"exit-code": code, "jobs": [], "errors": [error.lines[0]]})
        return code
    if report.exit_code is not None:
        for line in last_lines(Path(report.log_folder), _PRINTED_LINES):
            click.echo(line, err=is_json)
        click.echo(f"the program has ended without a job, with code {report.exit_code}", err=True)
        if is_json:
            print_json({"exit-code": report.exit_code, "jobs": [], "errors": []})
        daemon.end()
        return report.exit_code
    daemon.leave()
    if is_json:
        facts = {"address": report.address, "pid": report.pid, "log-folder": report.log_folder}
        jobs = [{"job-id": report.job_id}] if report.job_id else []
        if report.leader:
            facts["leader"] = report.leader
        if duty.is_supervised:
            facts |= {
                "supervisor-pid": daemon.pid,
                "supervisor-log-folder": str(daemon.log_folder),
            }
        print_json({"exit-code": 0, "jobs": jobs, "errors": [], **facts})
    else:
        _say(report, duty, daemon)
    return 0


def _say(report: Report, duty: RunProgram, daemon: DaemonProcess) -> None:
    if report.leader:
        where = f" at {report.address}" if report.address else ""
        click.echo(
            f"standby '{duty.name}-standby' takes over when {report.leader}, which runs the program{where}, is gone"
        )
        click.echo(f"end it with 'headrace cluster stop {duty.name}-standby'")
    elif report.job_id:
        click.echo(f"job {report.job_id} runs in process {report.pid}")
    else:
        click.echo(f"the program runs in process {report.pid}")
    if report.address and report.job_id:
        place = urlsplit(report.address).netloc
        click.echo(f"its dashboard is at {report.address} ('headrace open -m {place}' signs in)")
        click.echo(
            f"follow it with 'headrace list -m {place}' and 'headrace logs -m {place}', "
            f"end it with 'headrace stop -m {place} {report.job_id}'"
        )
    click.echo(f"what it prints, and its logs, are in {report.log_folder}")
    if duty.is_supervised:
        click.echo(
            f"process {daemon.pid} starts it again when it ends before its program does, and says why in "
            f"{daemon.log_folder}"
        )
