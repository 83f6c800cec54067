"""The notebook of examples/, run from its first cell to its last as its user would."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.spark.programs import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NOTEBOOK = ROOT / "examples" / "streams_in_a_notebook.ipynb"


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else IPython and Jupyter leave files in the home of who runs the tests.
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
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
    assert "Job &#x27;ticks&#x27;" in shown(notebook, "client")["text/html"]
    assert (
        "cancelled"
        in shown(notebook, "client.get_job_execution_result().exception()")["text/plain"]
    )
