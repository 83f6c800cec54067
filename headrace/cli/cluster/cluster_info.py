"""`headrace cluster info`: shows one cluster, from its connection file and its own answer."""

from typing import Any, Final

import click

from headrace.cli.cluster.list_clusters import (
    cluster_facts,
    local_time,
    restarting_facts,
    standby_facts,
)
from headrace.cli.cluster.standby import Standby, find_standby, live_standbys
from headrace.cli.jobs.cluster_command import (
    CLUSTER_NAME,
    ClusterCommand,
    ClusterSession,
    choose_cluster,
)
from headrace.rest.client_errors import ClusterRestartingError
from headrace.rest.home.supervisions import Supervision, supervision_of
from headrace.spark.options import MASTER

_HELP: Final = """\
Show a cluster: its address, process, Spark master, TaskManagers, slots and jobs.

\b
Try it:
  headrace cluster info                  the only cluster of this machine
  headrace cluster info nightly
  headrace cluster info -m 127.0.0.1:8082 --json
"""


@click.command("info", cls=ClusterCommand, help=_HELP)
@click.argument("name", metavar="[NAME]", type=CLUSTER_NAME, required=False)
@click.pass_obj
def cluster_info(session: ClusterSession, name: str | None) -> int:
    """Show a cluster; the help text is `_HELP`."""
    standby = None if name is None else find_standby(name)
    if standby is not None:
        return _tell_standby(session, standby)
    try:
        choose_cluster(session, name)
        connection = session.found.connection
    except ClusterRestartingError as error:
        return _tell_restarting(session, error.supervision)
    overview = session.client.get_object("/overview")
    settings: list[dict[str, str]] = session.client.get("/jobmanager/config")
    master = next((one["value"] for one in settings if one["key"] == MASTER.key), "")
    supervision = supervision_of(connection.pid, connection.start_ticks)
    facts: dict[str, Any] = {
        **cluster_facts(connection, supervision),
        "master": master,
        "version": overview.get("flink-version", ""),
        "taskmanagers": overview["taskmanagers"],
        "slots-total": overview["slots-total"],
        "slots-available": overview["slots-available"],
        "jobs-running": overview["jobs-running"],
        "jobs-finished": overview["jobs-finished"],
        "jobs-cancelled": overview["jobs-cancelled"],
        "jobs-failed": overview["jobs-failed"],
    }
    standbys = [one for one in live_standbys() if one.leader_address == connection.address]
    facts["standbys"] = [standby_facts(one) for one in standbys]
    session.answer(facts)
    if session.is_json:
        return 0
    used = facts["slots-total"] - facts["slots-available"]
    lines = {
        "name": connection.name or "-",
        "kind": facts["kind"],
        "address": connection.address,
        "process": str(connection.pid or "-"),
        "since": local_time(connection.started),
        "spark master": master or "-",
        "taskmanagers": str(facts["taskmanagers"]),
        "slots": f"{facts['slots-total']}, {used} of them in use",
        "jobs": f"{facts['jobs-running']} running, {facts['jobs-finished']} finished, "
        f"{facts['jobs-cancelled']} cancelled, {facts['jobs-failed']} failed",
    }
    if supervision is not None:
        lines["supervisor"] = f"process {supervision.pid}"
    if standbys:
        lines["standbys"] = ", ".join(f"{one.name} (process {one.pid})" for one in standbys)
    return _say_lines(session, lines)


def _tell_restarting(session: ClusterSession, supervision: Supervision) -> int:
    session.answer(restarting_facts(supervision))
    lines = {
        "name": supervision.name,
        "kind": supervision.kind,
        "address": "none: its driver is being restarted",
        "since": local_time(supervision.ended),
        "supervisor": f"process {supervision.pid}",
        "its log": supervision.log_folder,
    }
    return 0 if session.is_json else _say_lines(session, lines)


def _tell_standby(session: ClusterSession, standby: Standby) -> int:
    session.answer(standby_facts(standby))
    lines = {
        "name": standby.name,
        "kind": "standby",
        "leader": standby.leader,
        "leads at": standby.leader_address or "-",
        "process": str(standby.pid),
        "since": local_time(standby.started),
    }
    return 0 if session.is_json else _say_lines(session, lines)


def _say_lines(session: ClusterSession, lines: dict[str, str]) -> int:
    for title, text in lines.items():
        session.say(f"{title + ':':<14}{text}")
    return 0
