"""`headrace run -d`: runs a program in a daemon, and prints how to follow it once its first job was accepted."""

from urllib.parse import urlsplit

import click

from headrace.cli.daemon.daemon_cluster_descriptor import (
    DaemonClusterDescriptor,
    EndedWithoutJobError,
)
from headrace.cli.daemon.daemon_process import DaemonFailedError
from headrace.cli.general_options import print_json
from headrace.cli.logs import print_error
from headrace.client.deployed_cluster import DeployedCluster
from headrace.client.program import Program
from headrace.cluster.high_availability.lease import leader_at
from headrace.core.config import Settings


def run_detached(
    program: Program,
    settings: dict[str, str],
    *,
    is_standby: bool,
    is_supervised: bool,
    is_verbose: bool,
    is_json: bool = False,
) -> int:
    """Start the program; return 0 once its first job runs or it stands by, else the exit code with which it ended.

    `is_json`: standard output gets a single JSON document and nothing else.
    """
    descriptor = DaemonClusterDescriptor(Settings(settings), is_verbose=is_verbose)
    try:
        cluster = descriptor.deploy_application_cluster(
            program, is_standby=is_standby, is_supervised=is_supervised
        )
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
        jobs = [{"job-id": cluster.job_id}] if cluster.job_id else []
        if cluster.leader:
            facts["leader"] = cluster.leader
        if cluster.supervisor_pid:
            facts |= {
                "supervisor-pid": cluster.supervisor_pid,
                "supervisor-log-folder": cluster.supervisor_log_folder,
            }
        print_json({"exit-code": 0, "jobs": jobs, "errors": [], **facts})
    else:
        _say(cluster, program.name)
    return 0


def _say(cluster: DeployedCluster, name: str) -> None:
    if cluster.leader:
        leader = leader_at(cluster.leader, cluster.address)
        click.echo(
            f"standby '{name}-standby' takes over when {leader}, which runs the program, is gone"
        )
        click.echo(f"end it with 'headrace cluster stop {name}-standby'")
    elif cluster.job_id:
        click.echo(f"Job has been submitted with JobID {cluster.job_id}")
        click.echo(f"job {cluster.job_id} runs in process {cluster.pid}")
    else:
        click.echo(f"the program runs in process {cluster.pid}")
    if cluster.address and cluster.job_id:
        place = urlsplit(cluster.address).netloc
        click.echo(f"its dashboard is at {cluster.address} ('headrace open -m {place}' signs in)")
        click.echo(
            f"follow it with 'headrace list -m {place}' and 'headrace logs -m {place}', "
            f"end it with 'headrace stop -m {place} {cluster.job_id}'"
        )
    click.echo(f"its output and its logs are in {cluster.log_folder}")
    if cluster.supervisor_pid:
        click.echo(
            f"process {cluster.supervisor_pid} restarts the driver if it ends before its program does, and logs the "
            "reason in "
            f"{cluster.supervisor_log_folder}"
        )
