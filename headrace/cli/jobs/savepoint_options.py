"""Options that the commands with savepoints share: the format, and whether to wait."""

from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import ClusterSession

SAVEPOINT_FORMAT: Final = "CANONICAL"
"""The one format of savepoints."""


class _FormatType(click.Choice[str]):
    """Flink's formats, of which savepoints have the canonical one."""

    def __init__(self) -> None:
        super().__init__(["canonical"], case_sensitive=False)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.lower() == "native":
            self.fail("savepoints have the canonical format: leave the option out", param, ctx)
        return super().convert(value, param, ctx)


format_option = click.option(
    "-type",
    "--type",
    type=_FormatType(),
    expose_value=False,
    help="Accepted for Flink's scripts: savepoints have the canonical format.",
)
detached_option = click.option(
    "-detached",
    "--detached",
    "is_detached",
    is_flag=True,
    help="Do not wait for the savepoint: print its trigger id.",
)


def begin_detached(
    session: ClusterSession, job_id: str, path: str, body: dict[str, Any], title: str
) -> int:
    """Begin a savepoint, tell its trigger id and return the exit code; `title` is what Flink calls it."""
    trigger_id = session.client.begin(path, body)
    session.say(f"Successfully trigger {title}, triggerId: {trigger_id}")
    session.answer({"job-id": job_id, "request-id": trigger_id})
    return 0
