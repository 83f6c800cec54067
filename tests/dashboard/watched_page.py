"""A page that remembers all that went wrong in it: script errors, console errors, failed requests, other hosts."""

from typing import Final
from urllib.parse import urlsplit

from playwright.sync_api import ConsoleMessage, Page, Request, Response

JOB_PAGES = {
    "overview": "Vertices",
    "slow": "Why is it slow?",
    "no-output": "Why is there no output?",
    "checkpoints": "Last checkpoints",
    "state": "State",
    "exceptions": "Exceptions",
    "metrics": "Metrics",
    "flame-graph": "Flame graphs",
    "configuration": "Global job parameters",
}
"""Pages of a job, each with a heading on it."""


class WatchedPage:
    """Wraps a page of the browser. `problems` is empty where nothing went wrong."""

    def __init__(self, page: Page) -> None:
        self.page: Final = page
        self.problems: Final[list[str]] = []
        page.on("pageerror", lambda error: self.problems.append(f"script error: {error}"))
        page.on("console", self._console)
        page.on("requestfailed", self._failed)
        page.on("response", self._response)

    def open(self, cluster_address: str, place: str = "/overview") -> None:
        """Open the dashboard at a place, from the beginning."""
        self.page.goto("about:blank")
        self.page.goto(f"{cluster_address}/#{place}")

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console {message.type}: {message.text}")

    def _failed(self, request: Request) -> None:
        # A page that is left gives up what it asked for.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.problems.append(f"failed: {request.method} {request.url} {request.failure}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status}: {response.request.method} {response.url}")
        if urlsplit(response.url).hostname not in ("127.0.0.1", "", None):
            self.problems.append(f"another host: {response.url}")
