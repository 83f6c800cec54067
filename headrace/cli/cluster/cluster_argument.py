"""The argument NAME of commands that are about one cluster: its name, where it is not named by -m."""

import click
from click.shell_completion import CompletionItem

from headrace.cli.jobs.cluster_command import ClusterSession
from headrace.core.errors import HeadraceError
from headrace.rest.connections import find_named, live_connections


class ClusterNameType(click.ParamType[str]):
    """A name. The shell completes those of live clusters."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            found, _ = live_connections(lambda _: None)
        except (HeadraceError, OSError):
            return []  # a shell's line is no place for errors
        names = [one.connection for one in found if one.connection.name.startswith(incomplete)]
        return [CompletionItem(one.name, help=one.address) for one in names]


CLUSTER_NAME = ClusterNameType()


def choose_cluster(session: ClusterSession, name: str | None) -> None:
    """Have the session speak to the cluster of this name; without one it is that of -m, or the only one.

    UsageError where both are given; NoSuchClusterError; SeveralClustersError.
    """
    if name is None:
        return
    if session.address is not None:
        raise click.UsageError("a cluster is named by its name or by -m, not by both")
    session.found = find_named(name, session.note)
