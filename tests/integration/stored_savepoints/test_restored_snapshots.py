"""Snapshots of earlier versions are restored: the job goes on from them as that version would have done."""

from pathlib import Path

import pytest

from headrace import StreamExecutionEnvironment
from headrace.testing.minicluster_executor import MiniClusterExecutor
from tests.integration.stored_savepoints.program import CLUSTER, Run
from tests.integration.stored_savepoints.stored import STORED, Stored, unpack

pytestmark = pytest.mark.integration

RESTORES = [
    pytest.param(one, backend, id=f"{one} by {backend}")
    for one in STORED
    for backend in one.backends
]


@pytest.mark.parametrize(("stored", "backend"), RESTORES)
def test_a_job_goes_on_from_a_stored_snapshot_to_the_stored_answer(
    stored: Stored,
    backend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run(request.node.name, backend, unpack(stored), settings=stored.settings())
    with MiniClusterExecutor(slot_count=2, settings=CLUSTER):
        lines = stored.run_to_end(StreamExecutionEnvironment.get_execution_environment(), run)
    assert lines == stored.answer.read_text(encoding="utf-8").splitlines()
