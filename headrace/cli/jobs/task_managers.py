"""TaskManagers as people name them on a command line."""

from typing import Any

import click

from headrace.cli.jobs.cluster_command import ClusterSession


def task_manager_named(session: ClusterSession, named: str) -> str:
    """Return the id of the TaskManager with this id, number (from 1) or part of its id. UsageError lists all."""
    found: list[dict[str, Any]] = session.client.get_object("/taskmanagers").get("taskmanagers", [])
    ids = [str(one["id"]) for one in found]
    if named in ids:
        return named
    if named.isdigit() and 0 < int(named) <= len(ids):
        return ids[int(named) - 1]
    similar = [one for one in ids if named in one]
    if len(similar) == 1:
        return similar[0]
    listed = "".join(f"\n  {number}  {one}" for number, one in enumerate(ids, 1)) or " none"
    what = "several TaskManagers have" if similar else "no TaskManager has"
    raise click.UsageError(f"{what} '{named}' in the id; there are{listed}")
