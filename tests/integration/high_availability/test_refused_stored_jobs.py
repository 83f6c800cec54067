"""A stored job with which no leader can go on: it is FAILED with the cause, and the cluster's other jobs go on."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from headrace.checkpoint.storage.metadata_key import KEY_FILE, metadata_key, seal, unseal
from headrace.cluster.high_availability.job_graph_store import StoredJobGraph
from headrace.core.config import Settings
from headrace.graph.job_graph import JobGraph
from tests.integration.high_availability.drivers import NumbersJob, Rivals

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

replace: Final = msgspec.structs.replace
Change = Callable[[JobGraph], JobGraph]


def refuse_option(graph: JobGraph) -> JobGraph:
    return replace(graph, settings={**graph.settings, "restart-strategy.type": "gone"})


def retain_nothing(graph: JobGraph) -> JobGraph:
    return replace(graph, settings={**graph.settings, "execution.checkpointing.num-retained": "0"})


def miss_coordinator(graph: JobGraph) -> JobGraph:
    first, *others = graph.vertices
    source, *chained = first.operators
    operators = (replace(source, coordinator="of-another-installation"), *chained)
    return replace(graph, vertices=(replace(first, operators=operators), *others))


def new_job(pair: Rivals, name: str, count: int) -> NumbersJob:
    folder = pair.folder / name
    folder.mkdir()
    return NumbersJob(folder, count=count)


def graph_file(pair: Rivals, job: NumbersJob) -> Path:
    (found,) = pair.storage.glob(f"jobs/{job.job_id.hex()}-1/graph")
    return found


def change_graph(pair: Rivals, job: NumbersJob, change: Change) -> None:
    """Change a stored graph as another version of Headrace would have written it."""
    file, subject = graph_file(pair, job), f"graph of job {job.job_id} under leader 1"
    key = metadata_key(Settings({KEY_FILE.key: str(pair.folder / "key")}))
    content = unseal(file.read_bytes(), subject, key, str(file))
    stored = msgspec.msgpack.decode(content, type=StoredJobGraph)
    changed = replace(stored, graph=change(stored.graph))
    file.write_bytes(seal(msgspec.msgpack.encode(changed), subject, key))


def run_beside(pair: Rivals, good: NumbersJob, bad: NumbersJob) -> None:
    """Have a driver run both, and kill it once each has a checkpoint: neither has ended then."""
    first = pair.start("first")
    first.wait_for("leads")
    for job in (bad, good):
        first.ask_for("submitted", "submit", str(job.file))
        job.await_begin()
    first.kill()


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (refuse_option, "option 'restart-strategy.type' has the value 'gone'"),
        (retain_nothing, "option 'execution.checkpointing.num-retained' has the value"),
    ],
    ids=["option", "num-retained"],
)
def test_a_stored_job_whose_job_master_cannot_be_made_fails_alone(
    pair: Rivals, change: Change, cause: str
) -> None:
    good, bad = new_job(pair, "good", 8_000), new_job(pair, "bad", 1_000_000)
    run_beside(pair, good, bad)
    change_graph(pair, bad, change)
    second = pair.start("second")
    second.wait_for("leads")
    failed = second.ask("result", str(bad.job_id))
    assert failed["status"] == "FAILED"
    assert cause in failed["failure"].partition("\n")[0]
    assert sorted(second.ask("jobs")["ids"]) == sorted(map(str, (good.job_id, bad.job_id)))
    pair.assert_forgotten(bad, below="jobs")
    pair.assert_forgotten(bad, below="job-results")
    assert pair.newest_checkpoint(bad) is not None, "somebody may go on from it"
    assert second.ask("result", str(good.job_id))["status"] == "FINISHED"
    assert good.output() == good.expected
    pair.assert_forgotten(good)
    second.kill()
    third = pair.start("third")
    third.wait_for("leads")
    assert third.ask("jobs")["ids"] == [], "nothing is left of either"


def test_a_leader_without_a_coordinator_ends_and_leaves_all_jobs(pair: Rivals) -> None:
    good, bad = new_job(pair, "good", 1_000_000), new_job(pair, "bad", 1_000_000)
    run_beside(pair, good, bad)
    change_graph(pair, bad, miss_coordinator)
    second = pair.start("second")
    assert second.wait() != 0
    assert "which is not installed on the driver" in second.log
    for job in (good, bad):
        assert graph_file(pair, job).exists()
    assert not list(pair.storage.glob("job-results/*_DIRTY-2*")), "neither has ended"


def test_a_stored_job_that_cannot_be_read_fails_alone_and_its_files_stay(pair: Rivals) -> None:
    good, bad = new_job(pair, "good", 8_000), new_job(pair, "bad", 1_000_000)
    run_beside(pair, good, bad)
    graph = graph_file(pair, bad)
    graph.write_bytes(graph.read_bytes()[:-10])
    for name in ("second", "third"):
        driver = pair.start(name)
        driver.wait_for("leads")
        failed = driver.ask("result", str(bad.job_id))
        assert failed["status"] == "FAILED"
        assert f"{graph} cannot be trusted" in failed["failure"].partition("\n")[0]
        assert str(bad.job_id) in driver.ask("jobs")["ids"]
        if name == "second":
            assert driver.ask("result", str(good.job_id))["status"] == "FINISHED"
            pair.assert_forgotten(good)
        driver.kill()
    assert good.output() == good.expected
    assert graph.exists()
    assert pair.newest_checkpoint(bad) is not None
