"""Metrics of a job over a shuffle as clients read them, from the gates and writers up to the vertices."""

from collections.abc import Iterator

import pytest

from headrace.cluster.minicluster import MiniCluster
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.gateways.job_master import JobDetails
from headrace.metrics.names import METRIC_NAMES
from headrace.metrics.network_names import NETWORK_NAMES, with_network_names
from testkit.simulation.simulated_job import counting_job, forget_output

RANDOM = SeededRandom(12)


@pytest.fixture(scope="module")
def details() -> Iterator[JobDetails]:
    """Details of a job that has ended: numbers, counted per key behind a shuffle between two TaskManagers."""
    graph = counting_job(
        JobId.generate(RANDOM), "measured", count=300, interval_ms=1, parallelism=2, settings={}
    )
    with MiniCluster(task_manager_count=2) as cluster:
        handle = cluster.submit(graph)
        assert cluster.await_result(graph.job_id).status is JobStatus.FINISHED
        yield handle.call(handle.dispatcher.request_job_details(graph.job_id))
    forget_output("measured")


def test_what_one_vertex_sends_the_next_receives(details: JobDetails) -> None:
    source, counting = (vertex.metrics for vertex in details.vertices)
    assert source["numBytesOut"] == counting["numBytesIn"] > 0
    assert source["numBuffersOut"] == counting["numBuffersIn"] > 0
    assert source["numRecordsOut"] == counting["numRecordsIn"] == 300
    assert source["numBytesIn"] == counting["numBytesOut"] == 0


def test_bytes_of_this_process_and_of_others_make_all_bytes(details: JobDetails) -> None:
    for subtask in details.vertices[1].subtasks:
        metrics = subtask.metrics
        assert metrics["numBytesInLocal"] > 0 and metrics["numBytesInRemote"] > 0
        both = metrics["numBytesInLocal"] + metrics["numBytesInRemote"]
        assert metrics["numBytesIn"] == both


def test_pools_are_used_by_shares_and_nothing_waits_after_the_end(details: JobDetails) -> None:
    for vertex in details.vertices:
        for metrics in (vertex.metrics, *(subtask.metrics for subtask in vertex.subtasks)):
            assert 0 <= metrics["inPoolUsage"] <= 1 and 0 <= metrics["outPoolUsage"] <= 1
            assert metrics["inputQueueLength"] == 0 and metrics["outputQueueLength"] >= 0


def test_every_plain_name_that_a_task_reports_stands_in_the_table(details: JobDetails) -> None:
    known = {row.name for row in METRIC_NAMES}
    for vertex in details.vertices:
        assert {name for name in vertex.metrics if "." not in name} <= known


def test_every_metric_with_a_name_below_shuffle_netty_is_measured(details: JobDetails) -> None:
    for subtask in (one for vertex in details.vertices for one in vertex.subtasks):
        # Rates are told while a task runs.
        measured = {name for name in NETWORK_NAMES if not name.endswith("PerSecond")}
        assert measured <= subtask.metrics.keys()
        found = with_network_names(subtask.metrics)
        for name in measured:
            assert found[NETWORK_NAMES[name]] == found[name] == subtask.metrics[name]


def test_flinks_names_of_the_network_are_those_that_flink_documents() -> None:
    below = "Shuffle.Netty"
    moved = [
        f"num{what}In{where}" for what in ("Bytes", "Buffers") for where in ("Local", "Remote")
    ]
    waiting = ["QueueLength", "QueueSize", "PoolUsage"]
    named = {f"{below}.Input.{name}{rate}" for name in moved for rate in ("", "PerSecond")}
    named |= {f"{below}.Output.Buffers.out{'put' * ('Q' in name)}{name}" for name in waiting}
    named |= {f"{below}.Input.Buffers.in{'put' * ('Q' in name)}{name}" for name in waiting}
    named |= {
        f"{below}.Input.Buffers.input{kind}BuffersUsage" for kind in ("Floating", "Exclusive")
    }
    assert set(NETWORK_NAMES.values()) == named
