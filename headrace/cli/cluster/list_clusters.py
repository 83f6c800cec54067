"""`headrace cluster list`: clusters of this machine, from their connection files; none of them is asked."""

from datetime import datetime
from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import print_json
from headrace.core.error_text import without_controls
from headrace.rest.connections import ClusterConnection, live_connections

_HELP: Final = """\
List your clusters of this machine: sessions, programs that run, and history servers.

Files of clusters that have ended are removed.

\b
Try it:
  headrace cluster list
  headrace cluster list --json | jq -r '.clusters[].address'       for a program
"""
_TITLES: Final = ("NAME", "KIND", "ADDRESS", "PROCESS", "SINCE")


@click.command("list", help=_HELP)
@click.option(
    "--json",
    "is_json",
    is_flag=True,
    help="Print one JSON document; messages go to standard error.",
)
def list_clusters(is_json: bool) -> int:
    """List clusters; the help text is `_HELP`."""
    found, refused = live_connections(lambda text: click.echo(text, err=True))
    for error in refused:
        click.echo(str(error), err=True)
    connections = sorted((one.connection for one in found), key=lambda one: one.started)
    if is_json:
        print_json({"clusters": [_facts_of(one) for one in connections]})
        return 0
    if not connections:
        click.echo("No cluster runs: 'headrace cluster start' starts one.")
        return 0
    rows = [_TITLES, *(_row_of(one) for one in connections)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_TITLES))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())
    return 0


def cluster_kind(connection: ClusterConnection) -> str:
    """Return the word for a cluster with this connection."""
    if connection.is_history:
        return "history"
    return "session" if connection.is_session else "application"


def since(connection: ClusterConnection) -> str:
    """Return the local time at which it began, or a dash."""
    if not connection.started:
        return "-"
    return datetime.fromtimestamp(connection.started / 1000).astimezone().strftime("%F %T")


def _facts_of(connection: ClusterConnection) -> dict[str, Any]:
    return {
        "name": connection.name,
        "kind": cluster_kind(connection),
        "address": connection.address,
        "pid": connection.pid,
        "started": connection.started,
    }


def _row_of(connection: ClusterConnection) -> tuple[str, ...]:
    return (
        without_controls(connection.name) or "-",
        cluster_kind(connection),
        without_controls(connection.address),
        str(connection.pid or "-"),
        since(connection),
    )
