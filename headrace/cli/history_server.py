"""`headrace history-server`: shows jobs that have ended, from their archives."""

from typing import Final

import click

from headrace.cli.general_options import KeyValue, json_option, print_json, refuse_unusable
from headrace.cli.termination import asked_to_end
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.security.cluster_secret import given_identity
from headrace.core.security.tls import is_loopback
from headrace.rest.history.history_server import HistoryServer
from headrace.rest.history.options import (
    ARCHIVE_DIRECTORY,
    HISTORY_ADDRESS,
    HISTORY_DIRECTORIES,
    HISTORY_PORT,
)

_HELP: Final = """\
Serve the dashboard and the REST routes of jobs that have ended, until interrupted.

FOLDERS hold the archives that clusters write (jobmanager.archive.fs.dir), locally or in an object store.
New archives appear within 10 seconds. Spark is not started.

\b
Try it:
  headrace run -D jobmanager.archive.fs.dir=/data/history job.py
  headrace history-server /data/history              then open http://127.0.0.1:8082
  headrace open -m 127.0.0.1:8082                    the same, signed in
  headrace history-server /data/history s3://bucket/history --port 9000
  headrace history-server /data/history \\
               -D historyserver.archive.retained-jobs=5000 \\
               -D historyserver.archive.retained-ttl='30 d'
"""


@click.command(name="history-server", help=_HELP)
@click.argument("folders", nargs=-1)
@click.option(
    "--port", default=None, help="Port, or several ports of which the first free one is used."
)
@click.option("-D", "definitions", type=KeyValue(), multiple=True, help="A setting.")
@json_option
def history_server(
    folders: tuple[str, ...],
    port: str | None,
    definitions: tuple[tuple[str, str], ...],
    is_json: bool,
) -> None:
    """Run the history server; the help text is `_HELP`."""
    given = dict(definitions)
    refuse_unusable(given)
    if folders:
        given = {HISTORY_DIRECTORIES.key: ",".join(folders), **given}
    if port is not None:
        given = {HISTORY_PORT.key: port, **given}
    settings = Settings(given)
    if not any(settings.get_option(each) for each in (HISTORY_DIRECTORIES, ARCHIVE_DIRECTORY)):
        raise click.UsageError(
            f"name the folders to which clusters write their archives ('{ARCHIVE_DIRECTORY.key}')"
        )
    address = settings.get_option(HISTORY_ADDRESS)
    identity = None if is_loopback(address) else given_identity(settings)
    with asked_to_end() as wait_until_asked:
        try:
            server = HistoryServer(settings, SystemClock(), identity=identity)
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from error
        try:
            if is_json:
                print_json({"address": server.address, "folders": server.folders})
            else:
                click.echo(f"history server: {server.address}")
                for folder in server.folders:
                    click.echo(f"archives: {folder}")
            wait_until_asked()
        finally:
            server.close()
    click.echo("the history server ends; all archives are kept", err=is_json)
