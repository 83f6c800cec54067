"""Metrics over time: bounded points, whatever the length of a job."""

from headrace.core.ids import JobId, JobVertexId
from headrace.core.lifecycle import ExecutionState, JobStatus
from headrace.gateways.job_master import JobDetails, SubtaskDetails, VertexDetails
from headrace.rest.history.metrics_history import POINTS_MAX, MetricsHistory

JOB = JobId(b"j" * 16)
NONE_YET = -float(1 << 63)


def details(count: int = 1, **metrics: float) -> JobDetails:
    vertices = tuple(
        VertexDetails(
            JobVertexId(i.to_bytes(16, "big")),
            f"v{i}",
            1,
            (SubtaskDetails(0, 0, ExecutionState.RUNNING, None, dict(metrics)),),
        )
        for i in range(count)
    )
    return JobDetails(JOB, "job", JobStatus.RUNNING, {}, vertices)


def test_a_point_has_rates_shares_of_time_and_the_lag_of_the_watermark() -> None:
    history = MetricsHistory(interval_ms=1_000)
    history.add(
        10_000,
        details(
            numRecordsInPerSecond=12.34,
            numRecordsOutPerSecond=5.0,
            busyTimeMsPerSecond=700.0,
            backPressuredTimeMsPerSecond=100.0,
            currentInputWatermark=8_000.0,
        ),
    )
    (vertex,) = history.shown(JOB.hex()).vertices
    assert vertex.name == "v0"
    assert vertex.records_in_per_second == [12.3]
    assert vertex.records_out_per_second == [5.0]
    assert (vertex.busy, vertex.back_pressured) == ([700.0], [100.0])
    assert vertex.watermark_lag == [2_000.0]


def test_what_is_not_known_is_null() -> None:
    history = MetricsHistory(interval_ms=1_000)
    history.add(10_000, details(currentInputWatermark=NONE_YET, busyTimeMsPerSecond=float("nan")))
    (vertex,) = history.shown(JOB.hex()).vertices
    assert vertex.records_in_per_second == vertex.busy == vertex.watermark_lag == [None]
    assert '"busy":[null]' in history.shown(JOB.hex()).model_dump_json(by_alias=True)


def test_a_source_lags_by_what_it_sent() -> None:
    history = MetricsHistory(interval_ms=1_000)
    history.add(10_000, details(currentInputWatermark=NONE_YET, currentOutputWatermark=9_500.0))
    assert history.shown(JOB.hex()).vertices[0].watermark_lag == [500.0]


def test_points_are_not_nearer_than_the_interval_but_for_the_last() -> None:
    history = MetricsHistory(interval_ms=1_000)
    for now_ms in (0, 400, 1_000, 1_999, 2_500):
        history.add(now_ms, details())
    history.add(2_600, details(), is_last=True)
    assert history.shown(JOB.hex()).timestamps == [0, 1_000, 2_500, 2_600]


def test_a_long_job_has_few_points_that_reach_from_its_begin_to_its_end() -> None:
    history = MetricsHistory(interval_ms=1_000)
    end_ms = 7 * 24 * 3600 * 1000
    for now_ms in range(0, end_ms, 5_000):
        history.add(now_ms, details(busyTimeMsPerSecond=float(now_ms % 1000)))
    found = history.shown(JOB.hex())
    assert POINTS_MAX // 4 < len(found.timestamps) <= POINTS_MAX
    assert found.timestamps[0] == 0
    assert end_ms - found.timestamps[-1] <= found.interval
    assert all(
        late - early >= found.interval
        for early, late in zip(found.timestamps[1:], found.timestamps[2:], strict=False)
    )
    assert len(found.vertices[0].busy) == len(found.timestamps)


def test_a_job_with_very_many_vertices_has_fewer_points_each() -> None:
    history = MetricsHistory(interval_ms=1_000)
    for now_ms in range(0, 300_000, 1_000):
        history.add(now_ms, details(1_000))
    found = history.shown(JOB.hex())
    assert 10 <= len(found.timestamps) <= 20
    assert len(found.vertices) == 1_000


def test_a_vertex_that_comes_later_has_nothing_before() -> None:
    history = MetricsHistory(interval_ms=1_000)
    history.add(0, details(1))
    history.add(1_000, details(2, busyTimeMsPerSecond=1.0))
    assert [vertex.busy for vertex in history.shown(JOB.hex()).vertices] == [
        [None, 1.0],
        [None, 1.0],
    ]
