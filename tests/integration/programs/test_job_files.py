"""Files that travel with a job are there before its functions are loaded: packages, archives and cached files."""

import io
import os
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace import StreamExecutionEnvironment, Types
from headrace.api.settings.job_artifacts import job_artifacts
from headrace.cluster.blob.artifact_cache import environment_interpreter, make_artifacts
from headrace.cluster.blob.artifact_store import ArtifactStore
from headrace.cluster.blob.virtual_environment import MissingInterpreterError
from headrace.common import Configuration
from headrace.core.clock import SystemClock
from headrace.core.config import Settings
from headrace.core.errors import JobExecutionError
from headrace.datastream import MapFunction, RuntimeContext
from headrace.graph.job_graph import without_content
from headrace.testing.minicluster_executor import MiniClusterExecutor
from testkit.virtual_environments import archive, virtual_environment
from testkit.waiting import wait_until
from testkit.wheels import wheel

pytestmark = pytest.mark.integration


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def env(store: Path) -> Iterator[StreamExecutionEnvironment]:
    store.mkdir()
    settings = {
        "blob.storage.directory": str(store),
        "blob.service.cleanup.interval": "1 s",
        "restart-strategy.type": "none",
    }
    with MiniClusterExecutor(slot_count=2, settings=settings):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(2)
        yield env


def collected(env: StreamExecutionEnvironment, function: Any) -> list[str]:
    numbers = env.from_collection([1, 2], type_info=Types.LONG())
    with numbers.map(function, output_type=Types.STRING()).execute_and_collect() as rows:
        return sorted(rows)


def test_packages_of_requirements_are_installed_once_and_gone_after_the_job(
    env: StreamExecutionEnvironment, tmp_path: Path, store: Path
) -> None:
    wheel(tmp_path / "wheels", "headrace_test_pricing", "def price(n): return f'{n} coins'\n")
    (tmp_path / "requirements.txt").write_text("headrace_test_pricing==1.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "wheels"))

    def priced(number: int) -> str:
        import headrace_test_pricing  # pyright: ignore[reportMissingImports]

        place = Path(str(headrace_test_pricing.__file__)).parent
        return f"{headrace_test_pricing.price(number)} in {place}"

    found = collected(env, priced)
    assert [text.partition(" in ")[0] for text in found] == ["1 coins", "2 coins"]
    [place] = {text.partition(" in ")[2] for text in found}
    assert Path(place).is_relative_to(store)
    wait_until(lambda: not list(store.glob("headrace-artifacts-*/*")), what="the deletion of it")


def test_another_version_of_a_package_that_the_process_has_loaded_fails_the_job_with_both_versions(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    wheel(tmp_path / "wheels", "msgspec", "")
    (tmp_path / "requirements.txt").write_text("msgspec==1.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "wheels"))
    told = (
        f"asks for msgspec 1.0, but this process has already loaded msgspec {msgspec.__version__}"
    )
    with pytest.raises(JobExecutionError, match=re.escape(told)):
        collected(env, str)


@pytest.mark.parametrize("is_archived", [False, True])
def test_the_environment_of_a_job_has_its_packages_before_those_of_the_interpreter_that_made_it(
    tmp_path: Path, store: Path, is_archived: bool
) -> None:
    store.mkdir()
    wheel(tmp_path / "wheels", "msgspec", "NAME = 'of the job'\n")
    (tmp_path / "requirements.txt").write_text("msgspec==1.0\n")
    settings = {"python.requirements": f"{tmp_path / 'requirements.txt'}#{tmp_path / 'wheels'}"}
    interpreter = ""
    if is_archived:
        virtual_environment(tmp_path / "venv", has_packages=True)
        settings["python.archives"] = str(archive(tmp_path / "venv"))
        interpreter = "venv.zip/venv/bin/python"
    artifacts = job_artifacts(Settings(settings))
    contents = {without_content(one).key: one.content for one in artifacts}
    artifacts = tuple(map(without_content, artifacts))
    entries, notes = ArtifactStore(store, SystemClock()), list[str]()
    given = (entries, artifacts, Settings({}), lambda key: contents[key], interpreter)
    leases = make_artifacts(*given, notes.append)
    python = environment_interpreter(entries, artifacts, interpreter)
    program = "import sys, msgspec, pyarrow; print(msgspec.NAME, msgspec.__file__, sys.prefix)"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    place = python.parent.parent
    assert done.stdout.startswith(f"of the job {place}/lib/") and done.stdout.endswith(f"{place}\n")
    again = make_artifacts(*given, notes.append)
    assert [
        note.endswith(f"already on this host, in {lease.folder}")
        for note, lease in zip(notes, [*leases, *again], strict=True)
    ] == [False] * len(leases) + [True] * len(leases)
    for lease in (*leases, *again):
        lease.release()
    assert not list(store.iterdir())


def test_an_archive_without_the_interpreter_is_told_with_the_path(tmp_path: Path) -> None:
    virtual_environment(tmp_path / "venv", has_packages=False)
    artifacts = job_artifacts(Settings({"python.archives": str(archive(tmp_path / "venv"))}))
    [packed] = artifacts
    artifacts = (without_content(packed),)
    entries = ArtifactStore(tmp_path, SystemClock())
    [lease] = make_artifacts(entries, artifacts, Settings({}), lambda _: packed.content, "")
    with pytest.raises(
        MissingInterpreterError, match=r"'venv.zip' of the job has no file 'bin/py'"
    ):
        environment_interpreter(entries, artifacts, "venv.zip/bin/py")
    lease.release()


def test_a_requirement_that_cannot_be_had_fails_the_job_with_what_pip_said(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "requirements.txt").write_text("headrace_test_nowhere==1.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "wheels"))
    with pytest.raises(JobExecutionError, match="No matching distribution found") as failed:
        collected(env, str)
    assert "could not be installed" in str(failed.value)


def test_a_registry_that_is_out_of_reach_fails_the_job_and_says_what_to_do(
    env: StreamExecutionEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody listens there, and no setting of this machine names another place.
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    (tmp_path / "requirements.txt").write_text("headrace_test_pricing==1.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"))
    with pytest.raises(JobExecutionError, match="Connection refused") as failed:
        collected(env, str)
    assert "out of reach of the workers, ship the packages with the job" in str(failed.value)


class Reader(MapFunction):
    """Reads files by the names under which they travelled."""

    def open(self, runtime_context: RuntimeContext) -> None:
        files = runtime_context.get_distributed_cache()
        rates = Path(files.get_file("rates")).read_text()
        model = (Path(files.get_file("model")) / "weights" / "a.txt").read_text()
        folder = (Path(files.get_file("folder")) / "b.txt").read_text()
        with pytest.raises(KeyError, match="its files are: folder, model, rates"):
            files.get_file("nowhere")
        self._text = f"{rates} {model} {folder}"

    def map(self, value: int) -> str:
        return f"{value} {self._text}"


def test_archives_are_unpacked_and_cached_files_are_found_by_name_and_gone_after_the_job(
    env: StreamExecutionEnvironment, tmp_path: Path, store: Path
) -> None:
    (tmp_path / "rates.csv").write_text("rates")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b.txt").write_text("b")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as packed:
        entry = tarfile.TarInfo("weights/a.txt")
        entry.size = 1
        packed.addfile(entry, io.BytesIO(b"a"))
    env.register_cached_file(str(tmp_path / "rates.csv"), "rates")
    env.register_cached_file(str(tmp_path / "folder"), "folder")
    env.add_python_archive(str(tmp_path / "model.tar.gz"), "model")
    assert collected(env, Reader()) == ["1 rates a b", "2 rates a b"]
    wait_until(lambda: not list(store.glob("headrace-artifacts-*/*")), what="the deletion of them")


def test_an_archive_that_leads_out_of_its_folder_fails_the_job(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as packed:
        packed.writestr("../evil.txt", "evil")
    env.add_python_archive(str(tmp_path / "evil.zip"))
    with pytest.raises(JobExecutionError, match="leads out of its folder"):
        collected(env, str)


def test_files_that_are_too_big_together_are_refused_before_the_job_starts(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "big").write_bytes(b"x" * 2_000)
    env.register_cached_file(str(tmp_path / "big"), "big")
    env.configure(Configuration.from_dict({"headrace.artifacts.size-max": "1 kb"}))
    with pytest.raises(Exception, match=r"headrace\.artifacts\.size-max"):
        collected(env, str)
