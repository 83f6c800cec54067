"""A job on a MiniCluster as reporters see it: its tasks, operators and users, its checkpoints and restarts."""

import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from headrace.api.environment import StreamExecutionEnvironment
from headrace.cluster.minicluster import MiniCluster
from headrace.connectors.files.formats.text_lines import StreamFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import JobId
from headrace.core.lifecycle import JobStatus
from headrace.core.randomness import SeededRandom
from headrace.functions.record import MapFunction
from headrace.functions.runtime_context import RuntimeContext
from headrace.functions.watermarks import WatermarkStrategy
from headrace.gateways.dispatcher import JobResult
from headrace.graph.job_graph import JobGraph
from headrace.graph.job_graph_generator import generate_job_graph
from headrace.metrics.readings import GroupReading, MetricReport, Span
from headrace.metrics.reporters import registry as metric_registry
from headrace.metrics.reporters import reporter_setup
from headrace.metrics.reporters.reporter import MetricReporter
from headrace.metrics.scopes import GroupKind
from testkit.simulation.simulated_job import counting_job, forget_output
from tests.unit.metrics.reporters.local_server import local_server

RANDOM = SeededRandom(16)
NAME = "reported"
COUNT = 300
SETTINGS = {"metrics.reporter.noting.interval": "100 ms"}


class Noted:
    """Reports that the reporters of all processes were given."""

    def __init__(self) -> None:
        self.readings: dict[str, list[GroupReading]] = defaultdict(list)
        self.ended: dict[str, list[GroupReading]] = defaultdict(list)
        self.spans: list[Span] = []

    def last(self, kind: GroupKind, **variables: str) -> dict[str, float]:
        """The values of a group as it was reported for the last time."""
        found = [
            reading
            for readings in (self.readings, self.ended)
            for each in readings.values()
            for reading in each
            if reading.kind is kind and variables.items() <= reading.variables.items()
        ]
        return {".".join((*each.path, each.name)): each.value for each in found[-1].samples}


def noting(noted: Noted) -> type[MetricReporter]:
    class NotingReporter(MetricReporter):
        def report(self, report: MetricReport) -> None:
            noted.readings[self.config.process_name] += report.groups
            noted.ended[self.config.process_name] += report.ended

        def report_spans(self, spans: Sequence[Span]) -> None:
            noted.spans += spans

    return NotingReporter


def failing_job(name: str) -> JobGraph:
    """A job that takes checkpoints, fails once and finishes."""
    settings = {
        "execution.checkpointing.interval": "20 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    return counting_job(
        JobId.generate(RANDOM),
        name,
        count=COUNT,
        interval_ms=20,
        parallelism=2,
        settings=settings,
        fail_at=COUNT // 2,
        # Only a start that has come to its end is a span.
        is_checkpoint_awaited=True,
    )


@pytest.fixture(scope="module")
def noted() -> Noted:
    """Reports of a job that took checkpoints, failed once and finished."""
    noted, graph = Noted(), failing_job(NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reporter_setup, "load_entry_point", lambda group, name: noting(noted))
        with MiniCluster(task_manager_count=2, settings=SETTINGS) as cluster:
            cluster.submit(graph)
            assert cluster.await_result(graph.job_id).status is JobStatus.FINISHED
    forget_output(NAME)
    return noted


def test_each_process_reports_for_itself(noted: Noted) -> None:
    assert set(noted.readings) == {"jobmanager", "mini-tm-1", "mini-tm-2"}
    for name in ("mini-tm-1", "mini-tm-2"):
        values = noted.last(GroupKind.TASK_MANAGER, tm_id=name)
        assert values["Status.Shuffle.Netty.TotalMemory"] > 0
        assert values["Status.JVM.Memory.Heap.Used"] > 0
        assert values["Status.Headrace.Tasks.NumRecordsIn"] > 0
    driver = {
        sample.name: sample.value
        for reading in noted.readings["jobmanager"]
        if reading.kind is GroupKind.JOB_MANAGER
        for sample in reading.samples
        if sample.path == ("Status", "JVM", "Threads")
    }
    assert driver["Count"] > 0


def test_the_last_report_of_tasks_that_ended_has_every_record(noted: Noted) -> None:
    ended = [
        reading
        for each in noted.ended.values()
        for reading in each
        if reading.kind is GroupKind.TASK and reading.variables["task_attempt_num"] == "1"
    ]
    received = {
        reading.variables["task_name"]: sum(
            sample.value
            for other in ended
            if other.variables["task_name"] == reading.variables["task_name"]
            for sample in other.samples
            if sample.name == "numRecordsIn"
        )
        for reading in ended
    }
    assert len(ended) == 4
    source, sink = sorted(received, key=lambda name: "Sink" in name)
    # The second attempt went on from a checkpoint.
    assert 0 < received[sink] <= received[source] <= COUNT


def test_operators_have_groups_of_their_own(noted: Noted) -> None:
    sink = noted.last(GroupKind.OPERATOR, operator_name="Sink: RecordingSink", subtask_index="0")
    assert sink["numRecordsSend"] == sink["numRecordsIn"] > 0
    reduce = noted.last(GroupKind.OPERATOR, operator_name="Reduce", subtask_index="0")
    assert reduce["numRecordsIn"] == reduce["numRecordsOut"] == sink["numRecordsIn"]
    source = noted.last(GroupKind.OPERATOR, operator_name="Source: Paced", subtask_index="0")
    assert source["sourceIdleTime"] >= 0 and source["numRecordsOut"] > 0


def test_scopes_and_variables_are_flinks(noted: Noted) -> None:
    (reading, *_) = (
        each
        for each in noted.readings["mini-tm-1"]
        if each.kind is GroupKind.OPERATOR and each.variables["operator_name"] == "Reduce"
    )
    index = reading.variables["subtask_index"]
    assert reading.scope == ("127.0.0.1", "taskmanager", "mini-tm-1", NAME, "Reduce", index)
    assert reading.variables.keys() == {
        "host", "tm_id", "job_id", "job_name", "task_id", "task_name", "task_attempt_id",
        "task_attempt_num", "subtask_index", "operator_id", "operator_name",
    }  # fmt: skip


def test_the_driver_reports_the_job_until_it_has_ended(noted: Noted) -> None:
    values = noted.last(GroupKind.JOB_MANAGER_JOB, job_name=NAME)
    assert values["numRestarts"] == 1
    assert values["numberOfCompletedCheckpoints"] > 0
    assert values["lastCheckpointSize"] > 0
    assert (values["uptime"], values["runningTime"], values["downtime"]) == (-1, 0, -1)
    last = noted.ended["jobmanager"]
    assert [reading.kind for reading in last] == [GroupKind.JOB_MANAGER_JOB]


def test_the_driver_reports_the_cluster(noted: Noted) -> None:
    reports = [
        {sample.name: sample.value for sample in reading.samples}
        for reading in noted.readings["jobmanager"]
        if reading.kind is GroupKind.JOB_MANAGER
    ]
    seen = [values for values in reports if values.get("numRegisteredTaskManagers") == 2]
    assert any(
        (values["numRunningJobs"], values["taskSlotsTotal"], values["taskSlotsAvailable"])
        == (1, 2, 0)
        for values in seen
    )


def test_each_checkpoint_is_a_span(noted: Noted) -> None:
    spans = [span for span in noted.spans if span.name == "Checkpoint"]
    ids = [span.attributes["checkpointId"] for span in spans]
    assert ids == sorted(set(ids), key=ids.index) and len(ids) > 1
    completed = noted.last(GroupKind.JOB_MANAGER_JOB, job_name=NAME)
    statuses = [span.attributes["checkpointStatus"] for span in spans]
    assert statuses.count("COMPLETED") == completed["numberOfCompletedCheckpoints"]
    assert statuses.count("FAILED") == completed["numberOfFailedCheckpoints"]
    for span in spans:
        assert span.start_ms <= span.end_ms and bool(span.error) == (
            span.attributes["checkpointStatus"] == "FAILED"
        )


def test_the_start_and_each_restart_are_spans(noted: Noted) -> None:
    first, second = (span for span in noted.spans if span.name == "JobInitialization")
    assert (first.attributes["restart"], first.attributes["cause"]) == (0, "")
    assert second.attributes["restart"] == 1 and second.attributes["cause"]
    assert first.end_ms <= second.start_ms <= second.end_ms


def test_a_collector_gets_a_trace_for_the_start_and_for_the_recovery() -> None:
    graph = failing_job("traced")
    with local_server() as collector:
        settings = {
            "metrics.reporter.collector.factory.class": "otel",
            "metrics.reporter.collector.interval": "100 ms",
            "metrics.reporter.collector.exporter.endpoint": collector.url,
        }
        with MiniCluster(task_manager_count=2, settings=settings) as cluster:
            cluster.submit(graph)
            assert cluster.await_result(graph.job_id).status is JobStatus.FINISHED
        requests = [each for each in collector.requests if each.path == "/v1/traces"]
    forget_output("traced")
    starts = [
        {one.key: one.value for one in span.attributes}
        for request in requests
        for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if span.name == "JobInitialization"
    ]
    assert [each["restart"].int_value for each in starts] == [0, 1]
    assert [bool(each["cause"].string_value) for each in starts] == [False, True]


class Counting(MapFunction):
    """Counts in a group of its own, by a key and its value."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group().add_group("shop").add_group("tenant", "acme")
        self._seen = group.counter("seen")

    def map(self, value: int) -> int:
        self._seen.inc()
        return value


def run(name: str, cluster: MiniCluster) -> JobResult:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection(list(range(10))).map(Counting()).print()
    graph = generate_job_graph(env.get_stream_graph(name), JobId.generate(RANDOM), Settings())
    cluster.submit(graph)
    return cluster.await_result(graph.job_id)


def test_metrics_of_users_arrive_with_their_keys_as_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted = Noted()
    monkeypatch.setattr(reporter_setup, "load_entry_point", lambda group, name: noting(noted))
    with MiniCluster(settings=SETTINGS) as cluster:
        assert run("counted", cluster).status is JobStatus.FINISHED
    (sample,) = (
        sample
        for reading in noted.ended["mini-tm-1"]
        for sample in reading.samples
        if sample.name == "seen"
    )
    assert sample.value == 10
    assert sample.path == ("shop", "tenant", "acme") and sample.keys == ("shop", "tenant")
    assert sample.variables == {"tenant": "acme"}


def test_coordinators_are_reported_below_their_operators_also_for_the_last_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("a line\n")
    noted = Noted()
    monkeypatch.setattr(reporter_setup, "load_entry_point", lambda group, name: noting(noted))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(tmp_path)
    ).build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "Lines").print()
    graph = generate_job_graph(env.get_stream_graph("read"), JobId.generate(RANDOM), Settings())
    # Longer than the job takes: its values are those of its end.
    settings = {"metrics.reporter.noting.interval": "1 min"}
    with MiniCluster(settings=settings) as cluster:
        cluster.submit(graph)
        assert cluster.await_result(graph.job_id).status is JobStatus.FINISHED
    (reading,) = (
        each for each in noted.ended["jobmanager"] if each.kind is GroupKind.JOB_MANAGER_OPERATOR
    )
    assert reading.scope[1:] == ("jobmanager", "read", "Source: Lines")
    assert reading.variables.keys() == {
        "host", "job_id", "job_name", "task_id", "task_name", "operator_id", "operator_name",
    }  # fmt: skip
    values = {".".join((*each.path, each.name)): each.value for each in reading.samples}
    assert values["coordinator.numSplitsAssigned"] == 3
    assert values["coordinator.enumerator.unassignedSplits"] == 0
    assert values["coordinator.numEventsIn"] >= 4 and values["coordinator.numEventsOut"] >= 4


def test_a_reporter_that_hangs_holds_up_no_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may_go = threading.Event()

    class Hanging(MetricReporter):
        def report(self, report: MetricReport) -> None:
            may_go.wait()

    monkeypatch.setattr(reporter_setup, "load_entry_point", lambda group, name: Hanging)
    monkeypatch.setattr(metric_registry, "_CLOSE_TIMEOUT_S", 0.2)
    try:
        with MiniCluster(settings=SETTINGS) as cluster:
            for number in range(3):
                assert run(f"unharmed {number}", cluster).status is JobStatus.FINISHED
    finally:
        may_go.set()
    assert "metric reporter 'noting' does not end: the process ends without it" in caplog.text


def test_a_setting_of_a_reporter_that_cannot_be_ends_the_start() -> None:
    cluster = MiniCluster(settings={"metrics.reporters": "nothing"})
    with pytest.raises(ConfigurationError, match="there is no such reporter"):
        cluster.start()
