"""Imports go down the floor plan, never up or around."""

import subprocess
import sys

import pytest

from tests.architecture.floor_plan import (
    ARROWS,
    DATA_PLANE,
    FACADES,
    GROUND,
    HOSTS,
    PACKAGE,
    ROOT,
    Import,
    folder_of,
    imports_of,
    source_files,
    violation,
)


def violation_of(file: str, module: str) -> str | None:
    return violation(Import(ROOT / file, 1, module))


def test_every_import_follows_an_arrow() -> None:
    found = [violation(one) for file in source_files() for one in imports_of(file)]
    assert [text for text in found if text] == []


def test_every_folder_stands_in_the_table() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders - set(ARROWS) == set()


def test_every_folder_has_a_docstring_that_says_its_duty() -> None:
    holders = {file.parent for file in source_files()}
    assert [
        str(folder) for folder in sorted(holders) if not (folder / "__init__.py").exists()
    ] == []


def test_arrows_lead_only_to_folders_of_the_table() -> None:
    assert set().union(*ARROWS.values()) - set(ARROWS) == set()


def test_arrows_form_no_cycle_but_the_door_inside_the_cluster() -> None:
    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        pending = [start]
        while pending:
            for target in ARROWS[pending.pop()] - seen:
                seen.add(target)
                pending.append(target)
        return seen

    assert {name for name in ARROWS if name in reachable(name)} == {
        "cluster",
        "cluster.task_executor",
    }


def test_siblings_on_the_ground_import_only_core() -> None:
    assert all(ARROWS[name] <= {"core"} for name in GROUND)


def test_nobody_but_the_command_line_imports_a_host() -> None:
    importers = {name for name, targets in ARROWS.items() if targets & HOSTS}
    assert importers == {"cli", "__main__"}


def test_nobody_imports_testing_or_a_facade_but_testing_itself() -> None:
    hidden = FACADES | {"testing"}
    assert {name for name, targets in ARROWS.items() if targets & hidden} == {"testing"}


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("headrace/task/stream_task.py", "headrace.rpc.endpoint"),
        ("headrace/task/stream_task.py", "headrace.gateways"),
        ("headrace/api/streams/data_stream.py", "headrace.operators.registry"),
        ("headrace/graph/chaining.py", "headrace.functions.record"),
        ("headrace/functions/record.py", "headrace.graph"),
        ("headrace/cluster/job_master/job_master.py", "headrace.network.wire.frames"),
        ("headrace/cluster/minicluster.py", "headrace.task.mailbox"),
        ("headrace/rest/rest_server.py", "headrace.spark.host"),
        ("headrace/rest/client.py", "pyspark.sql"),
        ("headrace/network/wire/frames.py", "headrace.core"),
    ],
)
def test_the_check_tells_wrong_imports_from_right_ones(file: str, module: str) -> None:
    allowed = module == "headrace.core"
    assert (violation_of(file, module) is None) is allowed


def test_the_door_imports_both_planes() -> None:
    door = "headrace/cluster/task_executor/deployment.py"
    assert violation_of(door, "headrace.task.stream_task") is None
    assert violation_of(door, "headrace.gateways.job_master") is None


def test_the_longest_name_that_fits_is_the_folder() -> None:
    assert folder_of("headrace.cluster.task_executor.task_slot_table") == "cluster.task_executor"
    assert folder_of("headrace.cluster.job_master.job_master") == "cluster"
    assert folder_of("headrace") == ""


def test_importing_headrace_loads_neither_spark_nor_pandas() -> None:
    program = (
        "import sys, headrace\n"
        "[getattr(headrace, name) for name in headrace.__all__]\n"
        "print(sorted({'pyspark', 'py4j', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"


def data_plane_after(program: str) -> list[str]:
    """Modules of the data plane that a fresh interpreter has loaded after `program`."""
    show = f"print(*(m for m in sys.modules if m.split('.')[1:2] and m.split('.')[1] in {sorted(DATA_PLANE)}))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\n{show}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return [name for name in done.stdout.split() if name.startswith("headrace.")]


def test_a_job_manager_loads_nothing_of_the_data_plane() -> None:
    assert data_plane_after("import headrace.cluster.entrypoint") == []


def test_a_task_manager_does_load_the_data_plane() -> None:
    loaded = data_plane_after("import headrace.cluster.task_executor.task_manager_runner")
    assert {"headrace.network.partitions.result_partition", "headrace.task.task"} <= set(loaded)


@pytest.mark.parametrize("service", ["credit-based", "remote"])
def test_a_shuffle_service_is_found_by_name_without_its_task_managers_half(service: str) -> None:
    program = (
        "from headrace.core.config import Settings\n"
        "from headrace.cluster.task_executor.shuffle_service_loader import load_shuffle_service_factory\n"
        f"load_shuffle_service_factory(Settings({{'shuffle-service-factory.class': '{service}'}}))"
    )
    assert data_plane_after(program) == []


def test_the_master_of_the_remote_shuffle_service_knows_only_errors_of_the_data_plane() -> None:
    program = "import headrace.shuffle_service.remote_shuffle_master"
    assert data_plane_after(program) == ["headrace.network", "headrace.network.errors"]


def test_a_task_manager_starts_without_pandas() -> None:
    program = "import sys, headrace.spark.workers.worker; print('pandas' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "False"
