"""Options and arguments that the commands with savepoints share: format, waiting, and the trigger id."""

import re
from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import ClusterSession
from headrace.core.ids import ID_PATTERN, ID_TEXT_FORM


class _TriggerIdType(click.ParamType[str]):
    """The trigger id of a savepoint."""

    name = "trigger id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(ID_PATTERN, value):
            self.fail(
                f"'{value}' is not a trigger id, which has {ID_TEXT_FORM}; -detached prints it",
                param,
                ctx,
            )
        return value.lower()


TRIGGER_ID: Final = _TriggerIdType()
format_option = click.option(
    "-type",
    "--type",
    "format_type",
    type=click.Choice(["canonical", "native"], case_sensitive=False),
    default="canonical",
    callback=lambda _context, _option, value: value.upper(),
    help="Format: canonical (default), which any state backend restores, or native, the state backend's own, which "
    "is faster for large state in RocksDB.",
)
detached_option = click.option(
    "-detached",
    "--detached",
    "is_detached",
    is_flag=True,
    help="Do not wait for the savepoint: print its trigger id.",
)


def begin_detached(
    session: ClusterSession,
    job_id: str,
    path: str,
    body: dict[str, Any],
    title: str,
    directory: str | None,
) -> int:
    """Start a savepoint, print its trigger id and return the exit code; `title` is Flink's name of the operation."""
    trigger_id = session.client.begin(path, body)
    session.say(f"Successfully trigger {title}, triggerId: {trigger_id}")
    session.note(f"to see its result: headrace savepoint --result {trigger_id} {job_id}")
    if directory is not None and "://" not in directory and directory[:1] not in ("/", "~"):
        session.note(
            f"'{directory}' is relative to the folder in which the cluster was started; the result has the whole path"
        )
    session.answer({"job-id": job_id, "request-id": trigger_id})
    return 0
