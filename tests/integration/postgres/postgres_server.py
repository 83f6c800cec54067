"""A PostgreSQL server of the tests' own: a fresh cluster in a temporary folder, reached over a Unix socket only."""

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.connectors.postgres.options import JdbcConnectionOptions


def program(name: str) -> str:
    """Where Debian's package `postgresql` puts a program, or wherever the PATH has it."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    path = found[-1] if found else shutil.which(name)
    assert path, f"{name} is missing: install PostgreSQL's server (Debian's package postgresql)"
    return path


def owner() -> str | None:
    """The user that the server runs as, or None for ourselves: PostgreSQL refuses to be root."""
    if os.getuid() != 0:
        return None
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"


@contextlib.contextmanager
def running_server() -> Iterator[JdbcConnectionOptions]:
    """Start a server, hand out where it is, and stop it; nothing of it is left."""
    # The path of a socket may have some hundred characters: not below a test's own folder.
    folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    user = owner()
    try:
        if user is not None:
            shutil.chown(folder, user)
        data = folder / "data"
        initdb = [program("initdb"), "-D", data, "-U", "tests", "-A", "trust", "--no-sync"]
        subprocess.run(initdb, user=user, check=True, capture_output=True, cwd=folder)
        control = [program("pg_ctl"), "-D", str(data), "-w"]
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        start = [*control, "-l", str(folder / "log"), "-o", options, "start"]
        subprocess.run(start, user=user, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        try:
            builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
            url = f"jdbc:postgresql:///postgres?host={folder}"
            yield builder.with_url(url).with_user_name("tests").build()
        finally:
            stop = [*control, "-m", "immediate", "stop"]
            subprocess.run(stop, user=user, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
