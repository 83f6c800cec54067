import subprocess
import sys

from headrace import StreamExecutionEnvironment
from headrace.core.ids import ResourceId
from headrace.spark.job_descriptions import batch_description, worker_description
from tests.unit.api.recording import recording

WORKER = ResourceId("tm-1")


def test_a_description_names_cluster_job_and_dashboard() -> None:
    attempt = "attempt 2 of job 'hours' (Source)"
    described = worker_description(WORKER, "night", attempt, "http://127.0.0.1:8081")
    assert described == (
        "TaskManager tm-1 of cluster 'night'; started after attempt 2 of job 'hours' (Source); dashboard http://127.0.0.1:8081"
    )


def test_a_description_says_nothing_of_what_is_not_known() -> None:
    assert worker_description(WORKER, "", "", "") == "TaskManager tm-1"


def test_a_job_with_many_vertices_leaves_room_for_the_dashboard() -> None:
    described = worker_description(WORKER, "", "x" * 5000, "http://127.0.0.1:8081")
    assert len(described) < 500 and described.endswith("8081")


def test_a_description_of_a_job_in_batch_mode_names_its_vertices_and_its_page() -> None:
    with recording(1) as executor:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.from_collection([1]).key_by(lambda n: n).map(lambda n: n).name("doubled").print()
        env.execute_async("night")
        graph = executor.last
    described = batch_description(graph, "http://127.0.0.1:8081")
    first, second = (vertex.name for vertex in graph.vertices)
    assert "doubled" in second
    assert described == (
        f"BATCH job 'night' ({first}, {second}); dashboard http://127.0.0.1:8081/#/job/{graph.job_id}"
    )
    assert batch_description(graph, "") == f"BATCH job 'night' ({first}, {second})"


def test_a_driver_loads_none_of_the_modules_that_only_its_task_managers_need() -> None:
    script = "import sys, headrace.spark.host\nprint(*(name for name in sys.modules if name.startswith('headrace.')))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    rooms = {name.split(".")[1] for name in loaded}
    assert "spark" in rooms
    assert rooms & {"task", "operators", "state", "state_processor"} == set()
