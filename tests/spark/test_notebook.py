"""Notebooks in a real kernel: the one of examples/ from its first cell to its last, and cells that use sessions."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbclient.util import run_sync

from headrace.client.rest_cluster_client import RestClusterClient
from headrace.core.threads import start_thread
from headrace.rest.home.connections import find_session
from testkit.waiting import wait_until
from tests.spark.commands import NO_UI, Commands
from tests.spark.programs import ROOT, Program

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NOTEBOOK = ROOT / "examples" / "streams_in_a_notebook.ipynb"


IMPORTS: Final = """
import sys
from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration
from headrace.connectors.datagen.source import DataGeneratorSource
from headrace.functions.sink import DiscardingSink

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)


def say(settings):
    env.configure(Configuration.from_dict(settings))


def numbers():
    source = DataGeneratorSource(lambda index: index, type_info=Types.LONG(), rows_per_second=100)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")


def submit(name):
    numbers().sink_to(DiscardingSink())
    return env.execute_async(name)


say({"execution.target": "session"})
"""
COLLECT: Final = """
squares = env.from_collection([1, 2, 3], type_info=Types.LONG()).map(lambda n: n * n, Types.LONG())
with squares.execute_and_collect() as rows:
    print(sorted(rows), {"pyspark", "py4j"} & set(sys.modules))
"""
WIDGET: Final = "application/vnd.jupyter.widget-view+json"
TIED: Final = "execution.shutdown-on-attached-exit"


class Kernel:
    """A notebook that is typed cell by cell into a kernel of its own."""

    def __init__(self, folder: Path) -> None:
        self._notebook: Final = nbformat.v4.new_notebook()
        self.client: Final[Any] = NotebookClient(
            self._notebook,
            timeout=100,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )

    def run(self, source: str) -> Any:
        """Run a cell and return it with its outputs. CellExecutionError."""
        cell: Any = nbformat.v4.new_code_cell(source.strip())
        self._notebook.cells.append(cell)
        self.client.execute_cell(cell, len(self._notebook.cells) - 1)
        return cell

    def printed(self, source: str) -> str:
        """Return what a cell prints."""
        return "".join(one["text"] for one in self.run(source).outputs if "text" in one)

    def html(self, source: str) -> str:
        """Return the page that a cell shows."""
        (output,) = self.run(source).outputs
        return output["data"]["text/html"]

    def click(self, output: Any, description: str) -> None:
        """Do what the page does when somebody clicks on a button of the widget that a cell shows."""
        widgets: dict[str, Any] = self.client.widget_state
        box = output["data"][WIDGET]["model_id"]
        ids = [child.removeprefix("IPY_MODEL_") for child in widgets[box]["children"]]
        (button,) = [one for one in ids if widgets[one].get("description") == description]
        click = {"method": "custom", "content": {"event": "click"}}
        channel = self.client.kc.shell_channel
        channel.send(self.client.kc.session.msg("comm_msg", {"comm_id": button, "data": click}))

    def interrupt(self) -> None:
        """Do what the notebook's stop button does."""
        os.kill(self.client.km.provisioner.pid, signal.SIGINT)

    def restart(self) -> None:
        """Do what the notebook's restart button does: the kernel is told to end, and then ended."""
        run_sync(self.client.km.restart_kernel)(now=False)
        run_sync(self.client.kc.wait_for_ready)(timeout=60)

    def kill(self) -> None:
        """End the kernel as the kernel's own crash does."""
        os.kill(self.client.km.provisioner.pid, signal.SIGKILL)


@pytest.fixture
def commands(
    tmp_path: Path, started: list[Program], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Commands]:
    # Else IPython and Jupyter leave files in the home of who runs the tests.
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    yield Commands(tmp_path, started)


@pytest.fixture
def kernel(tmp_path: Path, commands: Commands) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path)
    with kernel.client.setup_kernel():
        yield kernel


def statuses(cluster: RestClusterClient) -> dict[str, str]:
    return {job.name: job.status.name for job in cluster.list_jobs()}


def test_cells_use_a_session_and_what_they_left_running_outlives_the_kernel(
    commands: Commands, kernel: Kernel
) -> None:
    commands.daemon("cluster", "start", "--name", "nightly", *NO_UI)
    assert kernel.printed(IMPORTS + COLLECT) == "[1, 4, 9] set()\n"
    assert kernel.html("squares.preview(2)").count("<td>") == 2
    # As if ipywidgets were not installed.
    kernel.run("sys.modules['ipywidgets'] = None")
    job = kernel.run("client = submit('kept')\nclient")
    assert "Job &#x27;kept&#x27;" in kernel.html(
        "from IPython.display import HTML\nHTML(client._repr_html_())"
    )
    # The page of a cell that has ended is renewed until its job has ended too.
    kernel.run(
        "import threading\n"
        "client.cancel().result()\n"
        "assert 'cancelled' in str(client.get_job_execution_result().exception())\n"
        "for thread in threading.enumerate():\n"
        "    if thread.name.startswith('show-'):\n"
        "        thread.join(30)"
    )
    (page,) = job.outputs
    assert "CANCELED" in page["data"]["text/html"]
    assert "client.cancel()" not in page["data"]["text/html"]

    with RestClusterClient() as cluster:
        # The stop button while a cell waits for its job: the job of a session goes on, and the cell says how to end it.
        interrupter = start_thread("interrupter", lambda: interrupt_running(kernel, cluster))
        with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
            kernel.run("numbers().sink_to(DiscardingSink())\nenv.execute('waited for')")
        interrupter.join(10)
        assert statuses(cluster)["waited for"] == "RUNNING"

        kernel.run("submit('left')")
        kernel.run(f"say({{'{TIED}': 'true'}})\nsubmit('tied')")
        kernel.restart()
        wait_until(lambda: statuses(cluster)["tied"] == "CANCELED", what="the end of the tied job")
        assert (statuses(cluster)["left"], statuses(cluster)["waited for"]) == ("RUNNING",) * 2

        # A kernel that dies tells nobody: its job ends once its heartbeats are missed.
        kernel.run(IMPORTS)
        kernel.run(
            f"say({{'{TIED}': 'true', 'client.heartbeat.interval': '200 ms', "
            "'client.heartbeat.timeout': '3 s'})\nsubmit('mourned')"
        )
        assert statuses(cluster)["mourned"] == "RUNNING"
        kernel.kill()
        wait_until(
            lambda: statuses(cluster)["mourned"] == "CANCELED",
            what="the end of the job of the dead",
        )


def interrupt_running(kernel: Kernel, cluster: RestClusterClient) -> None:
    """Interrupt a cell once the job for which it waits runs."""
    wait_until(
        lambda: statuses(cluster).get("waited for") == "RUNNING", what="the job that is waited for"
    )
    kernel.interrupt()


def test_the_stop_button_of_a_notebook_cancels_the_job(commands: Commands, kernel: Kernel) -> None:
    commands.daemon("cluster", "start", "--name", "nightly", *NO_UI)
    (output,) = kernel.run(IMPORTS + "client = submit('stopped')\nclient").outputs
    with RestClusterClient() as cluster:
        assert statuses(cluster) == {"stopped": "RUNNING"}
        kernel.click(output, "Stop")
        wait_until(lambda: statuses(cluster)["stopped"] == "CANCELED", what="the end of the job")


@pytest.mark.long
def test_a_kernel_uses_each_session_that_is_named_and_one_that_was_started_again(
    commands: Commands, kernel: Kernel
) -> None:
    commands.daemon("cluster", "start", "--name", "one", *NO_UI)
    assert "[1, 4, 9]" in kernel.printed(IMPORTS + COLLECT)
    commands.daemon("cluster", "start", "--name", "two", *NO_UI)
    kernel.run("say({'headrace.session.name': 'two'})\nsubmit('there')")
    with RestClusterClient.of(find_session("one", print)) as one:
        assert "there" not in statuses(one)
    with RestClusterClient.of(find_session("two", print)) as two:
        assert "there" in statuses(two)
    for name in ("one", "two"):
        commands("cluster", "stop", name)
    commands.daemon("cluster", "start", "--name", "two", *NO_UI)
    assert "[1, 4, 9]" in kernel.printed(COLLECT)


def shown(notebook: Any, beginning: str) -> dict[str, str]:
    """Return what the cell with such a beginning, or such a last line, shows."""
    (cell,) = [
        one
        for one in notebook.cells
        if one.cell_type == "code"
        and beginning in (one.source.split("\n")[0], one.source.split("\n")[-1])
    ]
    (output,) = [one for one in cell.outputs if "data" in one]
    return output["data"]


def test_the_notebook_runs_and_shows_streams_results_and_jobs(
    tmp_path: Path, commands: Commands
) -> None:
    read: Any = nbformat.read
    notebook = read(NOTEBOOK, as_version=4)
    client: Any = NotebookClient(
        notebook,
        timeout=200,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    stream = shown(notebook, "departures")["text/html"]
    assert "<td>origin</td><td>String</td>" in stream and "Source: flights" in stream
    preview = shown(notebook, "late.preview(2)")["text/html"]
    assert preview.count("<td>EWR</td>") == 1 and preview.count("<td>JFK</td>") == 1
    hours = shown(notebook, 'hours.to_arrow().sort_by("origin").to_pylist()')["text/plain"]
    assert "'flights': 2" in hours and "'mean_delay': -1.0" in hours
    # With ipywidgets it is a page in a widget, with a button beside it.
    page, button = (
        client.widget_state[name.removeprefix("IPY_MODEL_")]
        for name in client.widget_state[shown(notebook, "client")[WIDGET]["model_id"]]["children"]
    )
    assert "Job &#x27;ticks&#x27;" in page["value"]
    assert button["description"] == "Stop"
    assert (
        "cancelled"
        in shown(notebook, "client.get_job_execution_result().exception()")["text/plain"]
    )
