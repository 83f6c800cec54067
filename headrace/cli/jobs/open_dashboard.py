"""`headrace open`: opens the dashboard of a cluster in a browser, and signs in."""

import html
import json
import os
import signal
import webbrowser
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import click

from headrace.cli.jobs.cluster_command import ClusterCommand, ClusterSession
from headrace.core.security.tls import is_loopback
from headrace.rest.home.connections import (
    DASHBOARD_SUFFIX,
    FoundConnection,
    connections_folder,
    port_of,
)
from headrace.rest.home.home_folder import (
    write_private_file,
    writing_in_home,
)

_HELP: Final = """\
Open the dashboard in a browser, and sign in with the token of the cluster.

The browser opens a file that only you can read, so that the token is on no command line. The file is deleted when the
cluster ends; for a cluster on another machine it is deleted after 30 seconds, for which the command waits. The
dashboard keeps the token in a cookie, and removes it from the address at once.

\b
Try it:
  headrace open                            of the only cluster of this machine
  headrace open -m 127.0.0.1:8082
  headrace open --print                    the address with the token, to paste it into a browser elsewhere
"""
_PAGE_KEPT_S: Final = 30.0
"""Time for a browser to read the page of a cluster on another machine."""
_ENDS: Final = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
_PAGE: Final = """\
<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<title>Headrace</title>
<p><a href="{link}">Open the dashboard</a></p>
<script>location.replace({address})</script>
"""


@click.command("open", cls=ClusterCommand, help=_HELP)
@click.option(
    "--print", "is_printed", is_flag=True, help="Print the address instead of opening it."
)
@click.pass_obj
def open_dashboard(session: ClusterSession, is_printed: bool) -> int:
    """Open the dashboard; the help text is `_HELP`."""
    connection = session.found.connection
    # Report a cluster that does not answer, or refuses the token, here and not in the browser.
    session.client.get("/config")
    address = signed_in(connection.address, connection.token)
    session.answer({"address": address if is_printed else connection.address})
    if is_printed:
        if not session.is_json:
            click.echo(address)
        return 0
    if _is_removed_with_its_cluster(session.found):
        file = write_page(f"{port_of(connection.address)}", address)
        if webbrowser.open(file.as_uri()):
            session.say(f"The dashboard of {connection.address} opens in your browser.")
        else:
            session.say(
                f"No browser was found here: open {file}, or paste the address of 'headrace open --print'."
            )
        return 0
    file = write_page(f"open-{os.getpid()}", address)
    try:
        _open_for_a_while(session, file)
    finally:
        file.unlink(missing_ok=True)
    return 0


def _open_for_a_while(session: ClusterSession, file: Path) -> None:
    """Open a page, and return when it may be removed: after a while, or at SIGINT, SIGTERM or SIGHUP."""
    if not webbrowser.open(file.as_uri()):
        session.say("No browser was found here: paste the address of 'headrace open --print'.")
        return
    # Not earlier: the browser would take it over that these are blocked. Not later: from the next line on one may come.
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        session.say(
            f"The dashboard of {session.found.connection.address} opens in your browser; the page that signs it in is "
            f"removed in {_PAGE_KEPT_S:g} s (Ctrl-C: now)."
        )
        signal.sigtimedwait(_ENDS, _PAGE_KEPT_S)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)


def _is_removed_with_its_cluster(found: FoundConnection) -> bool:
    """Return whether the page is removed with the connection file, because its cluster is a process of this machine."""
    connection = found.connection
    host = urlsplit(connection.address).hostname or ""
    is_own = found.file is not None and found.file.stem == str(port_of(connection.address))
    return is_own and connection.pid > 0 and is_loopback(host)


def signed_in(address: str, token: str) -> str:
    """Return the address of the dashboard with the token in its fragment, which browsers do not send."""
    return f"{address}/#token={quote(token, safe='')}" if token else f"{address}/"


def write_page(name: str, address: str) -> Path:
    """Write the page that leads a browser to `address`, readable by its owner alone. HomeFolderError."""
    folder = connections_folder()
    file = folder / f"{name}{DASHBOARD_SUFFIX}"
    script = json.dumps(address).replace("<", "\\u003c")
    page = _PAGE.format(link=html.escape(address, quote=True), address=script)
    with writing_in_home():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private_file(file, page.encode())
    return file
