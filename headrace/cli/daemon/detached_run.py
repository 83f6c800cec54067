"""`headrace run -d`: has a daemon run a program, and says how to follow it once its first job was taken."""

from pathlib import Path
from urllib.parse import urlsplit

import click

from headrace.cli.daemon.daemon_cluster_descriptor import (
    DaemonClusterDescriptor,
    EndedWithoutJobError,
)
from headrace.cli.daemon.daemon_process import DaemonFailedError
from headrace.cli.logs import print_error
from headrace.cli.options import print_json
from headrace.client.deployed_cluster import DeployedCluster
from headrace.core.config import Settings


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
    descriptor = DaemonClusterDescriptor(Settings(settings), is_verbose=is_verbose)
    try:
        cluster = descriptor.deploy_application_cluster(program, arguments)
    except DaemonFailedError as error:
        code = print_error(error.lines)
        if is_json:
            print_json({"exit-code": code, "jobs": [], "errors": [error.lines[0]]})
        return code
    except EndedWithoutJobError as ended:
        for line in ended.lines:
            click.echo(line, err=is_json)
        click.echo(str(ended), err=True)
        if is_json:
            print_json({"exit-code": ended.exit_code, "jobs": [], "errors": []})
        return ended.exit_code
    if is_json:
        facts = {"address": cluster.address, "pid": cluster.pid, "log-folder": cluster.log_folder}
        print_json({"exit-code": 0, "jobs": [{"job-id": cluster.job_id}], "errors": [], **facts})
    else:
        _say(cluster)
    return 0


def _say(cluster: DeployedCluster) -> None:
    click.echo(f"job {cluster.job_id} runs in process {cluster.pid}")
    if cluster.address:
        place = urlsplit(cluster.address).netloc
        click.echo(f"its dashboard is at {cluster.address} ('headrace open -m {place}' signs in)")
        click.echo(
            f"follow it with 'headrace list -m {place}' and 'headrace logs -m {place}', "
            f"end it with 'headrace stop -m {place} {cluster.job_id}'"
        )
    click.echo(f"what it prints, and its logs, are in {cluster.log_folder}")
