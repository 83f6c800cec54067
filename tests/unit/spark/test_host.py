import subprocess
import sys

from headrace.core.ids import ResourceId
from headrace.spark.host import worker_description

WORKER = ResourceId("tm-1")


def test_a_description_names_cluster_job_and_dashboard() -> None:
    described = worker_description(WORKER, "night", "'hours' (Source)", "http://127.0.0.1:8081")
    assert described == (
        "TaskManager tm-1 of cluster 'night'; started after job 'hours' (Source); dashboard http://127.0.0.1:8081"
    )


def test_a_description_says_nothing_of_what_is_not_known() -> None:
    assert worker_description(WORKER, "", "", "") == "TaskManager tm-1"


def test_a_job_with_many_vertices_leaves_room_for_the_dashboard() -> None:
    described = worker_description(WORKER, "", "x" * 5000, "http://127.0.0.1:8081")
    assert len(described) < 500 and described.endswith("8081")


def test_a_driver_loads_none_of_the_modules_that_only_its_task_managers_need() -> None:
    script = "import sys, headrace.spark.host\nprint(*(name for name in sys.modules if name.startswith('headrace.')))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    rooms = {name.split(".")[1] for name in loaded}
    assert "spark" in rooms
    assert rooms & {"task", "operators", "state", "state_processor"} == set()
