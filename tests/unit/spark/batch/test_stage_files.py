"""StageFiles: a worker has the files of its jobs, and deletes those that earlier jobs have left, not those in use."""

from pathlib import Path
from typing import Any

import msgspec

from headrace.cluster.blob.artifact_store import ArtifactStore
from headrace.core.clock import SystemClock
from headrace.core.ids import BlobKey
from headrace.graph.job_graph import ArtifactKind, JobArtifact
from headrace.graph.pipeline_options import CACHED_FILES
from headrace.spark.batch.stage_files import EntriesInUse, StageFiles, modules_digest


class Content:
    """What an executor was sent."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    def destroy(self) -> None:
        """Let it go."""


def files_of_job(parent: Path, content: bytes) -> StageFiles:
    key = BlobKey.of(content)
    artifact = JobArtifact(ArtifactKind.FILE, "table", "table.csv", key=key, is_cached_file=True)
    contents: Any = {key: Content(content)}
    return StageFiles((artifact,), contents, str(parent))


def run_task(files: StageFiles) -> Path:
    """Use the one file as a task does, and return where it was."""
    with files.settings({}) as settings:
        (named,) = settings[CACHED_FILES.key].split(";")
        file = Path(named.partition("path:")[2])
        assert file.exists()
        return file


def test_files_of_an_earlier_job_go_when_a_worker_has_its_own(tmp_path: Path) -> None:
    earlier = ArtifactStore(tmp_path, SystemClock()).lease("earlier")
    earlier.make(lambda folder: (folder / "content").touch())
    earlier.leave(kept_ms=-1)
    files = files_of_job(tmp_path, b"to look up")
    file = run_task(files)
    assert not earlier.folder.exists()
    assert run_task(files) == file
    assert file.exists(), "the next task of the job would have to make it again"
    assert file.read_bytes() == b"to look up"


def test_a_job_deletes_no_files_between_two_tasks_of_another(tmp_path: Path) -> None:
    used = EntriesInUse()
    one, other, equal = (files_of_job(tmp_path, each) for each in (b"one", b"other", b"one"))
    for files in (one, other, equal):
        used.hold(files.entry_names)
    file = run_task(one)
    assert run_task(other) != file
    ArtifactStore(tmp_path, SystemClock()).delete_unused()
    assert file.exists(), "a new worker or TaskManager looks what earlier jobs have left"
    other.forget(used.release(other.entry_names))
    assert file.exists(), "the other job ends"
    equal.forget(used.release(equal.entry_names))
    assert file.exists(), "a job with an equal file ends"
    one.forget(used.release(one.entry_names))
    assert not list(tmp_path.iterdir()), "no job is left"


def test_workers_are_shared_by_jobs_that_import_equal_files() -> None:
    def artifact(kind: ArtifactKind, content: bytes, *, is_cached: bool = False) -> JobArtifact:
        key = BlobKey.of(content)
        return JobArtifact(kind, "rules", "rules.py", key=key, is_cached_file=is_cached)

    rules, more = (artifact(ArtifactKind.PYTHON_FILE, content) for content in (b"1", b"2"))
    table = artifact(ArtifactKind.FILE, b"table", is_cached=True)
    renamed = msgspec.structs.replace(rules, file_name="laws.py")
    assert modules_digest((rules,)) == modules_digest((rules, table))
    names = {modules_digest(each) for each in ((rules,), (more,), (renamed,), (rules, more))}
    assert len(names | {modules_digest((more, rules))}) == 5
    assert modules_digest((table,)) == "", "a worker imports nothing from it"
