"""Jobs in notebooks: a page that is renewed until the job ends, and a way to stop it."""

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import IPython
import IPython.display
import ipywidgets
import pytest

from headrace.api.client import job_display
from headrace.api.client.job_display import JobDisplay, job_html
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.gateways.job_master import JobDetails
from testkit.waiting import wait_until


def details(status: JobStatus, name: str = "hours") -> JobDetails:
    return JobDetails(JobId(bytes(16)), name, status, {}, ())


class Client:
    """Answers with each of the details in turn, and with the last one from then on."""

    def __init__(self, *answers: JobDetails | Exception) -> None:
        self.answers = list(answers)
        self.cancel_count = 0

    def get_job_details(self) -> Any:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

        def result(timeout_s: float) -> JobDetails:
            if isinstance(answer, Exception):
                raise answer
            return answer

        return SimpleNamespace(result=result)

    def get_job_id(self) -> JobId:
        return JobId(bytes(16))

    def cancel(self) -> None:
        self.cancel_count += 1

    def __repr__(self) -> str:
        return "JobClient(00)"


class Notebook:
    """Keeps what is displayed, and what takes its place."""

    def __init__(self) -> None:
        self.pages: list[Any] = []

    def display(self, shown: Any, *, raw: bool = False, display_id: bool = False) -> Any:
        self.pages.append(shown)
        return self

    def update(self, shown: Any, *, raw: bool) -> None:
        self.pages.append(shown)

    @property
    def last_html(self) -> str:
        return self.pages[-1]["text/html"]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made = Notebook()
    monkeypatch.setattr(IPython.display, "display", made.display)
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setattr(job_display, "INTERVAL_S", 0.01)
    monkeypatch.setattr(job_display, "find_spec", lambda name: None)
    return made


def show(client: Any) -> None:
    JobDisplay(client).show()


def test_names_are_escaped() -> None:
    page = job_html(details(JobStatus.RUNNING, "<script>alert(1)</script>"))
    assert "&lt;script&gt;" in page and "<script>" not in page


def test_a_page_is_renewed_until_the_job_ends(notebook: Notebook) -> None:
    running, finished = details(JobStatus.RUNNING), details(JobStatus.FINISHED)
    show(Client(running, running, finished))
    wait_until(lambda: "FINISHED" in notebook.last_html, 60, "the page says how the job ended")
    assert "RUNNING" in notebook.pages[0]["text/html"]


def test_without_widgets_a_page_says_how_to_stop_the_job_as_long_as_it_runs(
    notebook: Notebook,
) -> None:
    show(Client(details(JobStatus.RUNNING), details(JobStatus.CANCELED)))
    assert "client.cancel()" in notebook.pages[0]["text/html"]
    wait_until(lambda: "CANCELED" in notebook.last_html, 60, "the page says how the job ended")
    assert "client.cancel()" not in notebook.last_html


def test_with_widgets_a_button_cancels_the_job_and_ends_with_it(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_display, "find_spec", find_spec)
    client = Client(details(JobStatus.RUNNING), details(JobStatus.CANCELED))
    show(client)
    (box,) = notebook.pages
    page, button = box.children
    assert isinstance(button, ipywidgets.Button) and not button.disabled
    assert "RUNNING" in page.value
    button.click()
    assert client.cancel_count == 1
    wait_until(lambda: button.disabled, 60, "the button ends with the job")
    assert "CANCELED" in page.value


def test_a_cluster_that_does_not_answer_ends_the_renewal(notebook: Notebook) -> None:
    client = Client(details(JobStatus.RUNNING), HeadraceError("<gone>"))
    show(client)
    wait_until(lambda: "&lt;gone&gt;" in notebook.last_html, 60, "the page says why")
    assert "client.cancel()" not in notebook.last_html


def test_a_job_that_is_shown_again_is_renewed_at_its_newest_place_alone(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_display, "INTERVAL_S", 600)
    client: Any = Client(details(JobStatus.RUNNING))
    first = JobDisplay(client)
    first.show()
    JobDisplay(client).show()
    assert first._is_replaced.is_set()  # pyright: ignore[reportPrivateUsage]
    JobDisplay._shown.pop(client).set()  # pyright: ignore[reportPrivateUsage]


def test_a_terminal_gets_a_line(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace())
    show(Client(details(JobStatus.RUNNING)))
    assert notebook.pages == [{"text/plain": "JobClient(00)"}]
