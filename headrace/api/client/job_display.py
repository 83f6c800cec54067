"""JobDisplay: shows a job in a notebook with its status, vertices and counts until it ends, and offers to stop it.

With ipywidgets there is a button, whose click runs in the notebook's own Python process; otherwise the page names the
call that stops the job. A terminal gets a single line.
"""

import threading
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final
from weakref import WeakKeyDictionary

from headrace.api.client.job_client import JobClient
from headrace.api.html_text import paragraph, table
from headrace.core.errors import HeadraceError
from headrace.core.threads import start_thread
from headrace.gateways.job_master import JobDetails
from headrace.metrics.names import NUM_RECORDS_IN, NUM_RECORDS_OUT

INTERVAL_S: Final = 1.0
_ANSWER_S: Final = 10.0
_NO_BUTTON: Final = "To stop it: <code>client.cancel()</code>, where client is this object."


def job_html(details: JobDetails) -> str:
    """Return the HTML page that shows these details of a job."""
    rows = [
        (
            vertex.name,
            vertex.parallelism,
            ", ".join(sorted({subtask.state.name for subtask in vertex.subtasks})),
            int(vertex.metric(NUM_RECORDS_IN) or 0),
            int(vertex.metric(NUM_RECORDS_OUT) or 0),
        )
        for vertex in details.vertices
    ]
    head = paragraph(f"Job '{details.name}' ({details.job_id}): {details.status.name}")
    failure = "" if details.failure is None else paragraph(details.failure.text)
    heads = ("vertex", "parallelism", "subtasks", "records in", "records out")
    return head + table(heads, rows) + failure


def job_page(client: JobClient) -> tuple[str, bool]:
    """Fetch the job's details; return its page, and whether it is the last: the job has ended, or the call failed."""
    try:
        details = client.get_job_details().result(_ANSWER_S)
    except (HeadraceError, TimeoutError) as error:
        return paragraph(f"{client!r}: the cluster did not return the job's details: {error}"), True
    return job_html(details), details.status.is_terminal_state()


class JobDisplay:
    """Shows one job. If it is shown again, only the newest place is refreshed."""

    _shown: Final[WeakKeyDictionary[JobClient, threading.Event]] = WeakKeyDictionary()

    def __init__(self, client: JobClient) -> None:
        self._client: Final = client
        self._is_replaced: Final = threading.Event()

    def show(self) -> None:
        """Show the job, and refresh the page from a thread of its own until the job ends."""
        if not _is_notebook():
            _ipython().display({"text/plain": repr(self._client)}, raw=True)
            return
        replaced = self._shown.pop(self._client, None)
        if replaced is not None:
            replaced.set()
        self._shown[self._client] = self._is_replaced
        page, is_over = job_page(self._client)
        renew = self._with_button(page) if find_spec("ipywidgets") else self._without_button(page)
        if is_over:
            renew(page, True)
            return
        start_thread(f"show-{self._client.get_job_id()}", lambda: self._renew_until_over(renew))

    def _renew_until_over(self, renew: Callable[[str, bool], None]) -> None:
        is_over = False
        while not is_over and not self._is_replaced.wait(INTERVAL_S):
            page, is_over = job_page(self._client)
            renew(page, is_over)

    def _with_button(self, page: str) -> Callable[[str, bool], None]:
        widgets = import_module("ipywidgets")
        shown = widgets.HTML(value=page)
        button = widgets.Button(description="Stop", tooltip="Cancels the job")
        button.on_click(lambda _: self._client.cancel())
        _ipython().display(widgets.VBox([shown, button]))

        def renew(page: str, is_over: bool) -> None:
            shown.value = page
            button.disabled = is_over

        return renew

    def _without_button(self, page: str) -> Callable[[str, bool], None]:
        handle = _ipython().display(self._bundle(page, False), raw=True, display_id=True)
        return lambda page, is_over: handle.update(self._bundle(page, is_over), raw=True)

    def _bundle(self, page: str, is_over: bool) -> dict[str, str]:
        """Return the page, and a line of text for frontends that show no HTML."""
        how = "" if is_over else f"<p>{_NO_BUTTON}</p>"
        return {"text/html": page + how, "text/plain": repr(self._client)}


def _ipython() -> Any:
    return import_module("IPython.display")


def _is_notebook() -> bool:
    """Return whether the program runs in a Jupyter kernel, whose pages can be refreshed."""
    shell = import_module("IPython").get_ipython()
    return getattr(shell, "kernel", None) is not None
