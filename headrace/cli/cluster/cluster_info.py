"""`headrace cluster info`: one cluster, from its connection file and its own answer."""

from typing import Any, Final

import click

from headrace.cli.cluster.cluster_argument import CLUSTER_NAME, choose_cluster
from headrace.cli.cluster.list_clusters import cluster_kind, since
from headrace.cli.jobs.cluster_command import ClusterCommand, ClusterSession

_MASTER: Final = "headrace.spark.master"
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
    choose_cluster(session, name)
    overview = session.client.get_object("/overview")
    settings: list[dict[str, str]] = session.client.get("/jobmanager/config")
    master = next((one["value"] for one in settings if one["key"] == _MASTER), "")
    connection = session.found.connection
    facts: dict[str, Any] = {
        "name": connection.name,
        "kind": cluster_kind(connection),
        "address": connection.address,
        "pid": connection.pid,
        "started": connection.started,
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
    session.answer(facts)
    if session.is_json:
        return 0
    used = facts["slots-total"] - facts["slots-available"]
    lines = {
        "name": connection.name or "-",
        "kind": facts["kind"],
        "address": connection.address,
        "process": str(connection.pid or "-"),
        "since": since(connection),
        "spark master": master or "-",
        "taskmanagers": str(facts["taskmanagers"]),
        "slots": f"{facts['slots-total']}, {used} of them in use",
        "jobs": f"{facts['jobs-running']} running, {facts['jobs-finished']} finished, "
        f"{facts['jobs-cancelled']} cancelled, {facts['jobs-failed']} failed",
    }
    for title, text in lines.items():
        session.say(f"{title + ':':<14}{text}")
    return 0
