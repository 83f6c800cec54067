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
    program: Path,
    arguments: tuple[str, ...],
    settings: dict[str, str],
    *,
    is_verbose: bool,
    is_json: bool = False,
) -> int:
    """Start it, and return 0 once its first job runs; else the exit code with which it has ended.

    `is_json`: standard output has one document and nothing else.
    """
    daemon = DaemonProcess(RunProgram(str(program), arguments), settings, is_verbose=is_verbose)
    try:
        report = daemon.report()
    except DaemonFailedError as error:
        code = print_error(error.lines)
        if is_json:
            print_json({"exit-code": code, "jobs": [], "errors": [error.lines[0]]})
        return code
    if report.exit_code is not None:
        for line in last_lines(daemon.log_folder, _PRINTED_LINES):
            click.echo(line, err=is_json)
        click.echo(f"the program has ended without a job, with code {report.exit_code}", err=True)
        if is_json:
            print_json({"exit-code": report.exit_code, "jobs": [], "errors": []})
        daemon.end()
        return report.exit_code
    daemon.leave()
    if is_json:
        facts = {"address": report.address, "pid": daemon.pid, "log-folder": str(daemon.log_folder)}
        jobs = [{"job-id": report.job_id}]
        print_json({"exit-code": 0, "jobs": jobs, "errors": [], **facts})
    else:
        _say(report, daemon)
    return 0


def _say(report: Report, daemon: DaemonProcess) -> None:
    click.echo(f"job {report.job_id} runs in process {daemon.pid}")
    if report.address:
        place = urlsplit(report.address).netloc
        click.echo(f"its dashboard is at {report.address} ('headrace open -m {place}' signs in)")
        click.echo(
            f"follow it with 'headrace list -m {place}' and 'headrace logs -m {place}', "
            f"end it with 'headrace stop -m {place} {report.job_id}'"
        )
    click.echo(f"what it prints, and its logs, are in {daemon.log_folder}")
