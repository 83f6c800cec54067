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

TELEPHONE_WIDTH: Final = 375
# Charts and graphs follow the width of the window some frames later. What lies in a box that scrolls is not told.
_WIDE_ELEMENTS: Final = """async () => {
  const fits = () => document.scrollingElement.scrollWidth <= innerWidth;
  for (let frame = 0; frame < 4 || (frame < 120 && !fits()); frame++) {
    await new Promise((resolve) => requestAnimationFrame(resolve));
  }
  if (fits()) {
    return [];
  }
  const scrolls = (each) => each !== null && each !== document.body &&
    (getComputedStyle(each).overflowX !== "visible" || scrolls(each.parentElement));
  return [...document.querySelectorAll("body *")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 0.5 && !scrolls(each.parentElement))
    .map((each) => `${each.tagName} ${each.className} to ${Math.round(each.getBoundingClientRect().right)} px`)
    .concat("the page is " + document.scrollingElement.scrollWidth + " wide");
}"""

_NAMELESS_ELEMENTS: Final = """() =>
  [...document.querySelectorAll("a, button, input, select, textarea, table, nav, dialog, [role=img], [role=dialog]")]
    .filter((each) => !(each.getAttribute("aria-label") || each.getAttribute("aria-labelledby") ||
      each.textContent.trim() || each.labels?.length))
    .map((each) => each.outerHTML)"""


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

    def wide_elements(self) -> list[str]:
        """Look at the page as on a telephone, and return what makes it scroll sideways there."""
        before = self.page.viewport_size
        assert before is not None
        self.page.set_viewport_size({"width": TELEPHONE_WIDTH, "height": 800})
        found: list[str] = self.page.evaluate(_WIDE_ELEMENTS)
        self.page.set_viewport_size(before)
        return found

    def nameless_elements(self) -> list[str]:
        """Return what can be operated or looked at and has no name for those who do not see it."""
        found: list[str] = self.page.evaluate(_NAMELESS_ELEMENTS)
        return found

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
