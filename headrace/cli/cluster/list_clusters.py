"""`headrace cluster list`: clusters of this machine, from their connection files, without asking them."""

from datetime import datetime
from typing import Any, Final

import click

from headrace.cli.cluster.standby import Standby, live_standbys
from headrace.cli.figures import table_lines
from headrace.cli.general_options import json_option, print_json
from headrace.rest.home.connections import ClusterConnection, live_connections
from headrace.rest.home.supervisions import Supervision, live_supervisions, restarting

_HELP: Final = """\
List your clusters on this machine: sessions and their standbys, running programs, and history servers.

While a supervisor restarts a cluster's driver, the cluster has no address and its process is the supervisor.
Files of clusters that have ended are removed.

\b
Try it:
  headrace cluster list
  headrace cluster list --json | jq -r '.clusters[].address'       for a program
"""
_TITLES: Final = ("NAME", "KIND", "ADDRESS", "PROCESS", "SINCE")


@click.command("list", help=_HELP)
@json_option
def list_clusters(is_json: bool) -> int:
    """List clusters; the help text is `_HELP`."""
    found, refused = live_connections(lambda text: click.echo(text, err=True))
    for error in refused:
        click.echo(str(error), err=True)
    standbys = live_standbys()
    # A former leader stands by, and still returns the current leader at its address.
    standing_by = {one.pid for one in standbys}
    connections = sorted(
        (one.connection for one in found if one.connection.pid not in standing_by),
        key=lambda one: one.started,
    )
    away = restarting({*standing_by, *(one.pid for one in connections)})
    if is_json:
        supervised = {(one.driver_pid, one.driver_start_ticks): one for one in live_supervisions()}
        facts = [
            *(
                cluster_facts(one, supervised.get((one.pid, one.start_ticks)))
                for one in connections
            ),
            *(restarting_facts(one) for one in away),
            *(standby_facts(one) for one in standbys),
        ]
        print_json({"clusters": facts})
        return 0
    rows = [
        *map(_row_of, connections),
        *map(_restarting_row, away),
        *map(_standby_row, standbys),
    ]
    if not rows:
        click.echo("No cluster is running: 'headrace cluster start' starts one.")
        return 0
    click.echo("\n".join(table_lines(_TITLES, rows, cut=False)))
    return 0


def cluster_kind(connection: ClusterConnection) -> str:
    """Return the kind of cluster that this connection belongs to."""
    if connection.is_history:
        return "history"
    return "session" if connection.is_session else "application"


def local_time(epoch_ms: int) -> str:
    """Return the local time of a moment, or a dash if it is not known."""
    if not epoch_ms:
        return "-"
    return datetime.fromtimestamp(epoch_ms / 1000).astimezone().strftime("%F %T")


def standby_facts(standby: Standby) -> dict[str, Any]:
    """Return the JSON fields of a standby."""
    return {
        "name": standby.name,
        "kind": "standby",
        "address": "",
        "pid": standby.pid,
        "started": standby.started,
        "leader": standby.leader,
        "leader-address": standby.leader_address,
    }


def _standby_row(standby: Standby) -> tuple[str, ...]:
    leader = standby.leader_address or standby.leader
    return (
        standby.name,
        "standby",
        f"behind {leader}",
        str(standby.pid),
        local_time(standby.started),
    )


def cluster_facts(connection: ClusterConnection, supervision: Supervision | None) -> dict[str, Any]:
    """Return the JSON fields of a cluster and of its driver's supervisor."""
    facts = {
        "name": connection.name,
        "kind": cluster_kind(connection),
        "address": connection.address,
        "pid": connection.pid,
        "started": connection.started,
    }
    return facts if supervision is None else {**facts, "supervisor-pid": supervision.pid}


def restarting_facts(supervision: Supervision) -> dict[str, Any]:
    """Return the JSON fields of a cluster whose driver is being restarted."""
    return {
        "name": supervision.name,
        "kind": supervision.kind,
        "address": "",
        "pid": supervision.driver_pid,
        "started": supervision.started,
        "supervisor-pid": supervision.pid,
        "restarting-since": supervision.ended,
    }


def _restarting_row(supervision: Supervision) -> tuple[str, ...]:
    since = local_time(supervision.ended)
    return supervision.name, supervision.kind, "starts again", str(supervision.pid), since


def _row_of(connection: ClusterConnection) -> tuple[str, ...]:
    return (
        connection.name or "-",
        cluster_kind(connection),
        connection.address,
        str(connection.pid or "-"),
        local_time(connection.started),
    )
