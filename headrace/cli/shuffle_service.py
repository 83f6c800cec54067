"""`headrace shuffle-service`: keep the results of blocking exchanges in this process, for any number of clusters."""

import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Final

import click

from headrace.cli.key_value import KeyValue
from headrace.cli.known_settings import refuse_unusable
from headrace.core.cluster_secret import SECRET_FILE, cluster_secret, given_identity
from headrace.core.config import Settings
from headrace.core.randomness import secret_token
from headrace.core.tls import needs_tls
from headrace.network.server import DATA_PORT
from headrace.shuffle_service.options import ADDRESS, DIRECTORY, RPC_PORT
from headrace.shuffle_service.process import ShuffleServiceProcess

_HELP: Final = """\
Run a remote shuffle service until it is interrupted.

TaskManagers push the results of blocking exchanges to it, so that a result outlives the TaskManager that made it. What
was committed is found again by a service that starts in the same directory, even after a kill -9. No Spark is started.

\b
Try it:
  headrace shuffle-service --directory /data/shuffle --secret-file ~/.headrace/secret
  headrace run -D shuffle-service-factory.class=remote \\
               -D shuffle-service.address=127.0.0.1:7601 \\
               -D headrace.security.secret-file=$HOME/.headrace/secret \\
               -D execution.batch-shuffle-mode=ALL_EXCHANGES_BLOCKING job.py

Beyond this host it speaks TLS, with the identity of `headrace.security.identity-file`.
"""


@click.command(name="shuffle-service", help=_HELP)
@click.option("--directory", required=True, type=click.Path(path_type=Path), help="For results.")
@click.option(
    "--secret-file",
    required=True,
    type=click.Path(path_type=Path),
    help="The secret that its clusters share with it; made if it is not there.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", default="7601", show_default=True, help="For calls; 0 for any.")
@click.option("--data-port", default="7602", show_default=True, help="For results; 0 for any.")
@click.option("-D", "definitions", type=KeyValue(), multiple=True, help="A setting.")
def shuffle_service(
    directory: Path,
    secret_file: Path,
    host: str,
    port: str,
    data_port: str,
    definitions: tuple[tuple[str, str], ...],
) -> None:
    """The command."""
    given = dict(definitions)
    refuse_unusable(given)
    secret_file = secret_file.expanduser()
    if not secret_file.exists():
        _make_secret(secret_file)
    configured = Settings(
        {
            RPC_PORT.key: port,
            DATA_PORT.key: data_port,
            SECRET_FILE.key: str(secret_file),
            DIRECTORY.key: str(directory.expanduser().resolve()),
            **given,
        }
    )
    tls = given_identity(configured) if needs_tls(configured, host) else None
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with ShuffleServiceProcess(
        configured, secret=cluster_secret(configured), bind_host=host, tls=tls
    ) as process:
        found = process.service.committed_count
        click.echo(f"shuffle service in {directory}: {found} committed results were found")
        click.echo(f"{ADDRESS.key}: {process.address}")
        ended.wait()
    click.echo("the shuffle service ends; its committed results stay")


def _make_secret(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secret_token().hex() + "\n")
