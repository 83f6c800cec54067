"""`headrace run -d`: has a daemon run a program, and says how to follow it once its first job was taken."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from headrace.cli.daemon.console_file import last_lines
from headrace.cli.daemon.daemon_process import (
    DaemonFailedError,
    DaemonProcess,
    report_daemon_failure,
)
from headrace.cli.daemon.messages import Report, RunProgram

_PRINTED_LINES: Final = 1_000


def run_detached(
    program: Path, arguments: tuple[str, ...], settings: dict[str, str], *, is_verbose: bool
) -> int:
    """Start it, and return 0 once its first job runs; else the exit code with which it has ended."""
    daemon = DaemonProcess(RunProgram(str(program), arguments), settings, is_verbose=is_verbose)
    try:
        report = daemon.report()
    except DaemonFailedError as error:
        return report_daemon_failure(error)
    if report.exit_code is not None:
        for line in last_lines(daemon.log_folder, _PRINTED_LINES):
            click.echo(line)
        click.echo(f"the program has ended without a job, with code {report.exit_code}", err=True)
        daemon.end()
        return report.exit_code
    daemon.leave()
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
