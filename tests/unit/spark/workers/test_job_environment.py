"""The Python environment of a job on a host: what it is made of, and the process of the TaskManager that runs in it."""

import errno
import sys
from pathlib import Path

import pytest
from pyspark import SparkFiles

from headrace.cluster.blob import artifact_cache
from headrace.cluster.blob.virtual_environment import (
    MissingInterpreterError,
    RequirementsNotInstalledError,
)
from headrace.cluster.task_executor.options import TaskManagerConfiguration
from headrace.core.ids import BlobKey, JobId, ResourceId
from headrace.gateways.errors import BlobTransferError, UnfitArchiveError
from headrace.graph.job_graph import ArtifactKind, JobArtifact, JobGraph
from headrace.spark.session.spark_errors import UnusableEnvironmentError
from headrace.spark.workers import job_environment
from headrace.spark.workers.job_environment import JobEnvironment, made_environment, run_program

JOB = JobId(b"j" * 16)
ANSWER = "(lambda content: os.write(int(sys.argv[-1]), content))"
FILES = tuple(
    JobArtifact(kind, name, name)
    for kind, name in (
        (ArtifactKind.REQUIREMENTS, "requirements"),
        (ArtifactKind.PACKAGES, "packages"),
        (ArtifactKind.ARCHIVE, "venv.zip"),
        (ArtifactKind.ARCHIVE, "model"),
        (ArtifactKind.FILE, "rates"),
    )
)


@pytest.fixture(autouse=True)
def _shipped_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path / "shipped"))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)


def program(folder: Path, text: str) -> Path:
    """Write an interpreter that does the same whatever it is to run."""
    (folder / "bin").mkdir()
    path = folder / "bin" / "python"
    path.write_text(f"#!{sys.executable}\nimport os, sys\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("settings", "names", "archived", "executable"),
    [
        ({}, ["requirements", "packages"], "", ""),
        ({"python.executable": "/opt/python"}, ["requirements", "packages"], "", "/opt/python"),
        (
            {"python.executable": "/opt/python", "spark.pyspark.python": "/opt/spark/python"},
            ["requirements", "packages"],
            "",
            "",
        ),
        (
            {"python.executable": "venv.zip/bin/python", "python.archives": "venv.zip"},
            ["requirements", "packages", "venv.zip"],
            "venv.zip/bin/python",
            "",
        ),
    ],
)
def test_it_takes_from_the_job_what_it_is_made_of_and_no_more(
    settings: dict[str, str], names: list[str], archived: str, executable: str
) -> None:
    own = {"headrace.python.requirements.timeout": "1 min"}
    graph = JobGraph(JOB, "job", (), (), {**settings, **own, "password": "x"}, artifacts=FILES)
    environment = JobEnvironment.of(graph)
    assert [one.name for one in environment.artifacts] == names
    assert (environment.archived, environment.executable) == (archived, executable)
    assert environment.settings == own


@pytest.mark.parametrize(
    ("error", "is_passing"),
    [
        (RequirementsNotInstalledError("pip ended with 1", "no route to host"), True),
        (BlobTransferError("the driver did not answer"), True),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (UnfitArchiveError("venv.zip", "it is damaged", "pack it again"), False),
        (MissingInterpreterError("venv.zip", "bin/python"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_fault_of_one_host_is_told_from_one_of_the_job(
    error: Exception, is_passing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(job_environment, "make_artifacts", fail)
    environment = JobEnvironment(JOB, "", "", FILES, {})
    settings = {"blob.storage.directory": str(tmp_path)}
    configuration = TaskManagerConfiguration(ResourceId("tm-1"), "", b"", settings)
    with (
        pytest.raises(UnusableEnvironmentError) as failed,
        made_environment(environment, configuration, "", print),
    ):
        pass
    assert failed.value.recoverable is is_passing
    assert str(error) in str(failed.value)


def test_a_task_manager_gets_what_it_is_to_be_and_answers_why_it_ended(tmp_path: Path) -> None:
    interpreter = program(tmp_path, f"{ANSWER}(b'ready\\n' + sys.stdin.buffer.read())")
    assert run_program(interpreter, b"stopped by RPC\n") == "stopped by RPC\n"


def test_packages_and_programs_of_the_environment_come_before_all_others(tmp_path: Path) -> None:
    (packages := tmp_path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    told = f"{ANSWER}('\\n'.join(['ready', os.environ['PYTHONPATH'], os.environ['PATH']]).encode())"
    path, programs = run_program(program(tmp_path, told), b"").splitlines()
    assert path.partition(":")[0] == str(packages)
    assert programs.partition(":")[0] == str(tmp_path / "bin")


def test_a_task_manager_that_crashes_is_no_fault_of_its_environment(tmp_path: Path) -> None:
    interpreter = program(tmp_path, f"{ANSWER}(b'ready\\n'); sys.exit(7)")
    with pytest.raises(RuntimeError, match="ended with 7"):
        run_program(interpreter, b"")


def requirements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> tuple[JobEnvironment, TaskManagerConfiguration, list[Path]]:
    """Return a job with requirements, and a list of its environments, each of whose interpreters does `text`."""
    made: list[Path] = []

    def make(_: str, __: Path, ___: Path | None, folder: Path, ____: float) -> None:
        made.append(folder)
        folder.mkdir()
        program(folder, text)

    monkeypatch.setattr(artifact_cache, "make_virtual_environment", make)
    file = JobArtifact(ArtifactKind.REQUIREMENTS, "requirements", "file", key=BlobKey.of(b""))
    settings = {"blob.storage.directory": str(tmp_path)}
    configuration = TaskManagerConfiguration(ResourceId("tm-1"), "", b"", settings)
    return JobEnvironment(JOB, "", "", (file,), {}), configuration, made


@pytest.mark.parametrize("crash", ["os._exit(7)", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_the_task_manager_after_one_that_crashes_finds_the_environment_in_place(
    crash: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{ANSWER}(b'ready\\n'); {crash}"
    environment, configuration, made = requirements(tmp_path, monkeypatch, text)
    with (
        pytest.raises(RuntimeError, match="ended with"),
        made_environment(environment, configuration, "", print) as interpreter,
    ):
        run_program(interpreter, b"")
    with made_environment(environment, configuration, "", print) as again:
        assert again == interpreter
    assert len(made) == 1


def test_the_last_task_manager_that_ends_in_order_deletes_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, configuration, _ = requirements(tmp_path, monkeypatch, "")
    with made_environment(environment, configuration, "", print) as interpreter:
        assert interpreter.exists()
    assert not list(tmp_path.iterdir())


def test_an_interpreter_that_cannot_import_headrace_is_told_with_what_to_install(
    tmp_path: Path,
) -> None:
    interpreter = program(tmp_path, "raise ModuleNotFoundError(\"No module named 'headrace'\")")
    with pytest.raises(UnusableEnvironmentError, match="install the driver's versions") as failed:
        run_program(interpreter, b"x" * 1_000_000)
    assert "No module named 'headrace'" in str(failed.value)


def test_a_file_that_is_no_program_is_told(tmp_path: Path) -> None:
    interpreter = program(tmp_path, "")
    interpreter.chmod(0o600)
    with pytest.raises(UnusableEnvironmentError, match="does not run: Permission denied"):
        run_program(interpreter, b"")
