"""StageFiles: a worker has the files of its job, and deletes those that earlier jobs have left."""

from pathlib import Path
from typing import Any

from headrace.cluster.blob.artifact_store import ArtifactStore
from headrace.core.clock import SystemClock
from headrace.core.ids import BlobKey
from headrace.graph.job_graph import ArtifactKind, JobArtifact
from headrace.graph.pipeline_options import CACHED_FILES
from headrace.spark.batch.stage_files import StageFiles


class Content:
    """What an executor was sent."""

    def __init__(self, value: bytes) -> None:
        self.value = value


def test_files_of_an_earlier_job_go_when_a_worker_has_its_own(tmp_path: Path) -> None:
    earlier = ArtifactStore(tmp_path, SystemClock()).lease("earlier")
    earlier.make(lambda folder: (folder / "content").touch())
    earlier.leave()
    content = b"to look up"
    key = BlobKey.of(content)
    artifact = JobArtifact(ArtifactKind.FILE, "table", "table.csv", key=key, is_cached_file=True)
    contents: Any = {key: Content(content)}
    files = StageFiles((artifact,), contents, str(tmp_path))
    for _ in range(2):
        with files.settings({}) as settings:
            (named,) = settings[CACHED_FILES.key].split(";")
            file = Path(named.partition("path:")[2])
            assert file.read_bytes() == content
            assert not earlier.folder.exists()
    assert file.exists(), "the next task of the job would have to make it again"
