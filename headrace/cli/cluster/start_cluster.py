"""`headrace cluster start`: starts a session, as a daemon or in the foreground."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import click

from headrace.cli.cluster.session import NameTakenError, serve_session, taken_name
from headrace.cli.cluster.standby import live_standbys
from headrace.cli.daemon.daemon_cluster_descriptor import DaemonClusterDescriptor
from headrace.cli.daemon.daemon_process import DaemonFailedError
from headrace.cli.general_options import KeyValue, json_option, print_json, refuse_unusable
from headrace.cli.logs import configure_logs, print_error
from headrace.client.deployed_cluster import DeployedCluster
from headrace.cluster.high_availability.lease import leader_at
from headrace.cluster.high_availability.options import (
    HIGH_AVAILABILITY_TYPE,
    is_highly_available,
)
from headrace.core.config import Settings
from headrace.rest.home.connections import live_connections, read_connection
from headrace.rest.home.supervisions import live_supervisions
from headrace.spark.options import MASTER
from headrace.spark.session_cluster import SessionCluster

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FIRST_NAME: Final = "session"
_NAMES_MAX: Final = 1_000
_HELP: Final = """\
Start a cluster that runs jobs for any client until it is stopped.

It runs as a daemon, with the environment and the working directory of this command; its address and its token are in a
connection file that only you can read, by which your other commands find it. TaskManagers start when a job needs them
and stop when they are idle (resourcemanager.taskmanager-timeout).

\b
Try it:
  headrace cluster start
  headrace cluster start --name nightly --master spark://host:7077 -D spark.executor.memory=4g
  headrace cluster start -D headrace.spark.slots=8       room for eight TaskManagers on this machine
  headrace cluster start --foreground                    for systemd and containers: SIGTERM ends it in order
  headrace cluster start --supervise                     restarted, after a pause, if it ends by itself
  headrace cluster start --standby -D high-availability.type=file …       takes over when the leader is gone
"""


class ClusterName(click.ParamType[str]):
    """A name by which commands refer to a cluster: letters, digits, dots, dashes and underscores."""

    name = "name"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _NAME.fullmatch(value):
            self.fail(
                f"'{value}' is not a valid name: use at most 64 letters, digits, dots, dashes and underscores",
                param,
                ctx,
            )
        return value


@click.command("start", help=_HELP)
@click.option("--master", metavar="URL", help="Spark master (default: local[n] on this machine).")
@click.option(
    "--name",
    "wanted_name",
    type=ClusterName(),
    help="Name of the session (default: session, session-2 …).",
)
@click.option(
    "-D",
    "definitions",
    type=KeyValue(),
    multiple=True,
    help="A setting. Keys that begin with spark. go to Spark; any other must be listed by 'headrace options'.",
)
@click.option("--foreground", is_flag=True, help="Stay in the foreground; logs go to the terminal.")
@click.option(
    "--standby",
    "is_standby",
    is_flag=True,
    help="Start a standby, and return as soon as it waits behind the cluster's leader (needs high-availability.type).",
)
@click.option(
    "--supervise",
    "is_supervised",
    is_flag=True,
    help="Let a small process restart the session whenever it ends, except after 'headrace cluster stop'.",
)
@click.option("-v", "--verbose", is_flag=True, help="Also log what Headrace itself does.")
@json_option
def start_cluster(
    master: str | None,
    wanted_name: str | None,
    definitions: tuple[tuple[str, str], ...],
    foreground: bool,
    is_standby: bool,
    is_supervised: bool,
    verbose: bool,
    is_json: bool,
) -> int:
    """Start a session; the help text is `_HELP`."""
    configure_logs(verbose=verbose)
    settings = dict(definitions)
    if master is not None:
        settings[MASTER.key] = master
    refuse_unusable(settings)
    given = Settings(settings)
    _refuse_misfits(
        given, is_standby=is_standby, is_supervised=is_supervised, is_foreground=foreground
    )
    names = _names_for(wanted_name)
    if foreground:
        return _serve_here(given, names, is_json=is_json)
    descriptor = DaemonClusterDescriptor(given, is_verbose=verbose)
    try:
        name, found = _deploy_first(
            names,
            lambda name: descriptor.deploy_session_cluster(
                name, is_standby=is_standby, is_supervised=is_supervised
            ),
        )
    except DaemonFailedError as error:
        return print_error(error.lines)
    _say(_facts_of_daemon(found, name), is_json=is_json)
    return 0


def _refuse_misfits(
    settings: Settings, *, is_standby: bool, is_supervised: bool, is_foreground: bool
) -> None:
    """Raise UsageError if options contradict each other or the settings."""
    if is_standby and not is_highly_available(settings):
        raise click.UsageError(
            f"--standby needs the settings of the cluster that it may take over: -D {HIGH_AVAILABILITY_TYPE.key}=… "
            "and related settings, which 'headrace options high-availability' lists"
        )
    if is_foreground and is_supervised:
        raise click.UsageError(
            "--supervise cannot be used with --foreground: let systemd or the container restart the session"
        )


def _serve_here(settings: Settings, names: Iterable[str], *, is_json: bool) -> int:
    """Serve a session in this process, under the first name that is free, until it is stopped. NameTakenError."""
    with contextlib.ExitStack() as stack:
        name = _take_first(names, stack)
        return serve_session(
            settings,
            name,
            None,
            lambda cluster: _say(_facts_of(cluster, name), is_json=is_json),
            on_standby=lambda leader: click.echo(
                _standby_text(name, leader_at(leader.holder, leader.address)), err=True
            ),
        )


def _facts_of(cluster: SessionCluster, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "address": cluster.rest.address,
        "pid": read_connection(cluster.rest.connection_file).pid,
        "master": cluster.master,
        "connection-file": str(cluster.rest.connection_file),
    }


def _facts_of_daemon(found: DeployedCluster, name: str) -> dict[str, Any]:
    facts = {
        "name": name,
        "address": found.address,
        "pid": found.pid,
        "master": found.master,
        "connection-file": found.connection_file,
        "log-folder": found.log_folder,
    }
    if found.leader:
        facts["leader"] = found.leader
    if found.supervisor_pid:
        facts["supervisor-pid"] = found.supervisor_pid
        facts["supervisor-log-folder"] = found.supervisor_log_folder
    return facts


def _say(facts: Mapping[str, Any], *, is_json: bool) -> None:
    if is_json:
        print_json(facts)
        return
    name = facts["name"]
    if "leader" in facts:
        click.echo(_standby_text(name, leader_at(facts["leader"], facts["address"])))
        click.echo(f"end it with 'headrace cluster stop {name}'")
    else:
        _say_running(facts)
    if "log-folder" in facts:
        click.echo(f"its logs are in {facts['log-folder']}")
    if "supervisor-pid" in facts:
        click.echo(
            f"process {facts['supervisor-pid']} restarts it if it ends by itself, and logs the reason in "
            f"{facts['supervisor-log-folder']}"
        )


def _standby_text(name: str, leader: str) -> str:
    return f"standby '{name}' takes over when {leader}, which leads the cluster, is gone"


def _say_running(facts: Mapping[str, Any]) -> None:
    name = facts["name"]
    click.echo(
        f"session '{name}' runs at {facts['address']} (process {facts['pid']}, Spark master {facts['master']})"
    )
    click.echo(
        f"run programs there with 'headrace run --target session --cluster {name} program.py', "
        f"stop it with 'headrace cluster stop {name}'"
    )


def _names_for(wanted: str | None) -> Iterator[str]:
    """Return the wanted name, or all free names, in order. UsageError if a running cluster has the wanted name."""
    found, _ = live_connections(lambda text: click.echo(text, err=True))
    taken = {
        one.name: f"under process {one.pid}, its supervisor, which is restarting it"
        for one in live_supervisions()
    }
    taken |= {one.connection.name: f"at {one.connection.address}" for one in found}
    taken |= {one.name: f"at process {one.pid}, as a standby" for one in live_standbys()}
    if wanted is None:
        names = (_FIRST_NAME, *(f"{_FIRST_NAME}-{number}" for number in range(2, _NAMES_MAX)))
        return (name for name in names if name not in taken)
    if wanted in taken:
        raise click.UsageError(str(NameTakenError(wanted, taken[wanted])))
    return iter((wanted,))


def _take_first(names: Iterable[str], stack: contextlib.ExitStack) -> str:
    """Hold the first name that no other process takes, for as long as the stack is open. NameTakenError."""
    failure: NameTakenError | None = None
    for name in names:
        try:
            stack.enter_context(taken_name(name))
        except NameTakenError as error:
            failure = error
        else:
            return name
    raise failure or AssertionError("no name is free")


def _deploy_first(
    names: Iterable[str], deploy: Callable[[str], DeployedCluster]
) -> tuple[str, DeployedCluster]:
    """Deploy the cluster under the first name that no other process takes. DaemonFailedError."""
    failure: DaemonFailedError | None = None
    for name in names:
        try:
            return name, deploy(name)
        except DaemonFailedError as error:
            if not error.is_name_taken:
                raise
            failure = error
    raise failure or AssertionError("no name is free")
