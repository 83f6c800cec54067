"""`headrace savepoint`: what is done with savepoints that exist."""

import click

from headrace.checkpoint.options import KEY_FILE
from headrace.checkpoint.savepoint_disposal import dispose_savepoint
from headrace.cli.checkpoint import key_settings


@click.group(help="Work with savepoints.")
def savepoint() -> None:
    """The group."""


@savepoint.command(help="Delete the savepoint at PATH, with all its files.")
@click.argument("path")
@click.option("--key-file", metavar="PATH", help=f"The key of the metadata ({KEY_FILE.key}).")
def dispose(path: str, key_file: str | None) -> int:
    """Delete a savepoint; only what is one for certain."""
    disposed = dispose_savepoint(path, key_settings(key_file))
    metadata = disposed.metadata
    click.echo(f"savepoint {metadata.checkpoint_id} of job '{metadata.job_name}' is deleted")
    return 0
