"""`headrace shuffle-service`: keeps the results of blocking exchanges in this process, for any number of clusters."""

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Collection, Generator
from pathlib import Path
from typing import Final

import click

from headrace.cli.general_options import KeyValue, json_option, print_json, refuse_unusable
from headrace.cli.termination import asked_to_end
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, PortInUseError
from headrace.core.randomness import secret_token
from headrace.core.security.cluster_secret import (
    IDENTITY_FILE,
    SECRET_FILE,
    cluster_secret,
    given_identity,
)
from headrace.core.security.tls import ALLOW_PLAINTEXT, SSL_ENABLED, TlsIdentity, needs_tls
from headrace.network.transport.server import DATA_PORT
from headrace.shuffle_service.options import ADDRESS, DIRECTORY, HOST, RPC_PORT
from headrace.shuffle_service.options import advertised_host as host_of
from headrace.shuffle_service.process import ShuffleServiceProcess

_OPTIONS: Final = {
    DIRECTORY.key: "--directory",
    SECRET_FILE.key: "--secret-file",
    HOST.key: "--advertised-host",
    RPC_PORT.key: "--port",
    DATA_PORT.key: "--data-port",
}
"""Options of this command by the setting for which they stand, unless -D sets it."""

_HELP: Final = """\
Run a remote shuffle service until interrupted.

TaskManagers push the results of blocking exchanges to it, so that a result outlives its TaskManager. A
service that starts in the same directory finds all committed results, even after a kill -9. Spark is not started.

\b
Try it:
  headrace shuffle-service --directory /data/shuffle --secret-file ~/.headrace/secret
  headrace run -D shuffle-service-factory.class=remote \\
               -D shuffle-service.address=127.0.0.1:7601 \\
               -D headrace.security.secret-file=$HOME/.headrace/secret \\
               -D execution.batch-shuffle-mode=ALL_EXCHANGES_BLOCKING job.py

\b
If other hosts can reach it, it uses TLS, with the identity of `headrace.security.identity-file`:
  headrace shuffle-service --host 0.0.0.0 --advertised-host shuffle-1.example.org \\
               -D headrace.security.identity-file=/secrets/identity.pem …
"""


@click.command(name="shuffle-service", help=_HELP)
@click.option(
    "--directory", required=True, type=click.Path(path_type=Path), help="Directory for the results."
)
@click.option(
    "--secret-file",
    required=True,
    type=click.Path(path_type=Path),
    help="File with the secret shared with its clusters; created if it does not exist.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address on which to listen.")
@click.option(
    "--advertised-host",
    default="",
    help="Name or address at which clusters reach it. Default: that of --host, or for 0.0.0.0 the machine's name.",
)
@click.option("--port", default="7601", show_default=True, help="Port for RPC; 0 for any free one.")
@click.option(
    "--data-port", default="7602", show_default=True, help="Port for results; 0 for any free one."
)
@click.option("-D", "definitions", type=KeyValue(), multiple=True, help="A setting.")
@json_option
def shuffle_service(
    directory: Path,
    secret_file: Path,
    host: str,
    advertised_host: str,
    port: str,
    data_port: str,
    definitions: tuple[tuple[str, str], ...],
    is_json: bool,
) -> None:
    """Run the shuffle service; the help text is `_HELP`."""
    given = dict(definitions)
    refuse_unusable(given)
    secret_file = secret_file.expanduser()
    if not secret_file.exists():
        _make_secret(secret_file)
    configured = Settings(
        {
            HOST.key: advertised_host,
            RPC_PORT.key: port,
            DATA_PORT.key: data_port,
            SECRET_FILE.key: str(secret_file),
            DIRECTORY.key: str(directory.expanduser().resolve()),
            **given,
        }
    )
    with _errors_by_option(given):
        known_as = host_of(configured, host)
    tls = _identity(configured, host, known_as)
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        failures.append(error)
        os.kill(os.getpid(), signal.SIGTERM)

    with (
        asked_to_end() as wait_until_asked,
        _errors_by_option(given),
        ShuffleServiceProcess(
            configured,
            secret=cluster_secret(configured),
            bind_host=host,
            advertised_host=known_as,
            tls=tls,
            on_fatal_error=failed,
        ) as process,
    ):
        found = process.service.committed_count
        click.echo(
            f"shuffle service in {directory}: {found} committed results were found", err=is_json
        )
        if is_json:
            print_json({"address": process.address, "committed-results": found})
        else:
            click.echo(f"{ADDRESS.key}: {process.address}")
        wait_until_asked()
    _refuse(failures)
    click.echo("the shuffle service ends; its committed results are kept", err=is_json)


def _refuse(failures: list[BaseException]) -> None:
    """Raise the first of the errors, if any, as the reason for which the service ends."""
    if failures:
        error = failures[0]
        raise click.ClickException(
            f"the shuffle service failed and ends; its committed results are kept. {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def _errors_by_option(given: Collection[str]) -> Generator[None, None, None]:
    """Name the command's own options in errors about values that they set and -D (`given`) does not."""
    try:
        yield
    except ConfigurationError as error:
        if error.key in given or error.key not in _OPTIONS:
            raise
        raise click.BadParameter(error.reason, param_hint=f"'{_OPTIONS[error.key]}'") from error
    except PortInUseError as error:
        if error.option_key in given:
            raise
        option = _OPTIONS.get(error.option_key, error.option_key)
        raise PortInUseError(error.host, error.port, option, error.allowed) from error
    except OSError as error:
        if not isinstance(error, socket.gaierror) and error.errno != errno.EADDRNOTAVAIL:
            raise
        reason = f"this host has no such address: {error.strerror}"
        raise click.BadParameter(reason, param_hint="'--host'") from error


def _identity(settings: Settings, host: str, known_as: str) -> TlsIdentity | None:
    """Return the TLS identity of the service, or None for plaintext. ConfigurationError.

    A local listener that other hosts reach by a tunnel or as a container is treated like a public one.
    """
    # Both are asked, so that both may refuse.
    if not any([needs_tls(settings, each) for each in (host, known_as)]):
        return None
    identity = given_identity(settings)
    if identity is None:
        raise ConfigurationError(
            IDENTITY_FILE.key,
            None,
            f"a shuffle service at {host} uses TLS, with the identity of its clusters: give the service and the "
            f"clusters a file, or set '{SSL_ENABLED.key}' to false, and for other hosts '{ALLOW_PLAINTEXT.key}' to "
            "true, if the network is private",
        )
    return identity


def _make_secret(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secret_token().hex() + "\n")
