"""Options that the commands with savepoints share: the format, and whether to wait."""

from typing import Final

import click

DEFAULT_FORMAT: Final = "CANONICAL"

format_option = click.option(
    "-type",
    "--type",
    "format_type",
    type=click.Choice(["canonical", "native"], case_sensitive=False),
    callback=lambda _context, _parameter, value: None if value is None else value.upper(),
    help="Format of the savepoint.",
)
detached_option = click.option(
    "-detached",
    "--detached",
    "is_detached",
    is_flag=True,
    help="Do not wait for the savepoint: print its trigger id.",
)
