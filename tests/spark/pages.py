"""What web pages answer, and where the pages of a user's cluster are."""

import urllib.request
from pathlib import Path
from urllib.error import HTTPError

from headrace.rest.home.connections import FoundConnection, connection_in


def cluster_of(home: Path) -> FoundConnection:
    """The one cluster that is in a user's folder."""
    [file] = (home / "clusters").glob("*.json")
    return connection_in(file)


def answer(url: str, token: str, data: bytes | None = None) -> tuple[int, str]:
    """Status and content; `data` is sent by POST."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, data, headers), timeout=60
        ) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
