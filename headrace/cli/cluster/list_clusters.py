"""`headrace cluster list`: clusters of this machine, from their connection files; none of them is asked."""

from datetime import datetime
from typing import Any, Final

import click

from headrace.cli.cluster.standby import Standby, live_standbys
from headrace.cli.figures import table_lines
from headrace.cli.options import json_option, print_json
from headrace.rest.connections import ClusterConnection, live_connections

_HELP: Final = """\
List your clusters of this machine: sessions and their standbys, programs that run, and history servers.

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
    # A leader of the past stands by, and still answers at its address who leads.
    standing_by = {one.pid for one in standbys}
    connections = sorted(
        (one.connection for one in found if one.connection.pid not in standing_by),
        key=lambda one: one.started,
    )
    if is_json:
        facts = [cluster_facts(one) for one in connections]
        print_json({"clusters": [*facts, *(standby_facts(one) for one in standbys)]})
        return 0
    if not connections and not standbys:
        click.echo("No cluster runs: 'headrace cluster start' starts one.")
        return 0
    rows = [*map(_row_of, connections), *map(_standby_row, standbys)]
    click.echo("\n".join(table_lines(_TITLES, rows, cut=False)))
    return 0


def cluster_kind(connection: ClusterConnection) -> str:
    """Return the word for a cluster with this connection."""
    if connection.is_history:
        return "history"
    return "session" if connection.is_session else "application"


def since(cluster: ClusterConnection | Standby) -> str:
    """Return the local time at which it began, or a dash."""
    if not cluster.started:
        return "-"
    return datetime.fromtimestamp(cluster.started / 1000).astimezone().strftime("%F %T")


def standby_facts(standby: Standby) -> dict[str, Any]:
    """Return what is told of a standby to programs."""
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
    return standby.name, "standby", f"behind {leader}", str(standby.pid), since(standby)


def cluster_facts(connection: ClusterConnection) -> dict[str, Any]:
    """Return what is told of a cluster to programs."""
    return {
        "name": connection.name,
        "kind": cluster_kind(connection),
        "address": connection.address,
        "pid": connection.pid,
        "started": connection.started,
    }


def _row_of(connection: ClusterConnection) -> tuple[str, ...]:
    return (
        connection.name or "-",
        cluster_kind(connection),
        connection.address,
        str(connection.pid or "-"),
        since(connection),
    )
