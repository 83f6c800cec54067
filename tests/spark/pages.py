"""What web pages answer."""

import urllib.request
from urllib.error import HTTPError


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
