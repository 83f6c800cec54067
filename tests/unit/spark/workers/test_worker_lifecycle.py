"""The life of a TaskManager's Spark job: each end is reported once, and nobody is cancelled before his grace."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.ids import ResourceId
from headrace.core.resource_profile import ResourceProfile
from headrace.spark.workers.worker_lifecycle import (
    CancelJob,
    ClockRead,
    JobEnded,
    ReleaseRequested,
    ReportStarted,
    ReportTerminated,
    SubmitJob,
    TaskActive,
    WorkerAction,
    WorkerEvent,
    WorkerLifecycles,
    WorkerRequested,
)

ONE = ResourceId("tm-1")
TWO = ResourceId("tm-2")
ANY = ResourceProfile()
GRACE_MS = 10_000.0


def machine() -> WorkerLifecycles:
    return WorkerLifecycles(stop_grace_ms=GRACE_MS, cancel_retry_ms=1_000.0)


def started(lifecycles: WorkerLifecycles, worker_id: ResourceId = ONE) -> WorkerLifecycles:
    lifecycles.handle(WorkerRequested(worker_id, ANY), 0)
    lifecycles.handle(TaskActive(worker_id), 0)
    return lifecycles


def test_a_request_submits_a_job_and_the_active_task_is_reported_once() -> None:
    lifecycles = machine()
    assert lifecycles.handle(WorkerRequested(ONE, ANY), 0) == [SubmitJob(ONE, ANY)]
    assert lifecycles.handle(TaskActive(ONE), 0) == [ReportStarted(ONE)]
    assert lifecycles.handle(TaskActive(ONE), 0) == []


def test_a_started_worker_that_is_released_gets_its_grace_before_the_kill() -> None:
    lifecycles = started(machine())
    assert lifecycles.handle(ReleaseRequested(ONE), 0) == []
    assert lifecycles.handle(ClockRead(), GRACE_MS - 1) == []
    assert lifecycles.handle(ClockRead(), GRACE_MS) == [CancelJob(ONE)]


def test_a_worker_that_returns_within_its_grace_is_never_cancelled() -> None:
    lifecycles = started(machine())
    lifecycles.handle(ReleaseRequested(ONE), 0)
    assert lifecycles.handle(JobEnded(ONE, None), 100) == [ReportTerminated(ONE, "released")]
    assert lifecycles.handle(ClockRead(), 2 * GRACE_MS) == []


def test_a_cancellation_is_repeated_until_the_job_has_ended() -> None:
    lifecycles = started(machine())
    lifecycles.handle(ReleaseRequested(ONE), 0)
    assert lifecycles.handle(ClockRead(), GRACE_MS) == [CancelJob(ONE)]
    assert lifecycles.handle(ClockRead(), GRACE_MS + 999) == []
    assert lifecycles.handle(ClockRead(), GRACE_MS + 1_000) == [CancelJob(ONE)]
    lifecycles.handle(JobEnded(ONE, "cancelled"), GRACE_MS + 1_100)
    assert lifecycles.handle(ClockRead(), GRACE_MS + 9_000) == []


def test_a_worker_that_waits_for_a_core_is_cancelled_when_spark_has_had_time_to_start_it() -> None:
    lifecycles = machine()
    lifecycles.handle(WorkerRequested(ONE, ANY), 0)
    assert lifecycles.handle(ReleaseRequested(ONE), 0) == []
    assert lifecycles.handle(ClockRead(), 1_999) == []
    assert lifecycles.handle(ClockRead(), 2_000) == [CancelJob(ONE)]
    ended = lifecycles.handle(JobEnded(ONE, "cancelled"), 2_100)
    assert ended == [ReportTerminated(ONE, "released")]


def test_that_time_counts_from_the_moment_in_which_the_task_of_a_released_worker_is_active() -> (
    None
):
    lifecycles = machine()
    lifecycles.handle(WorkerRequested(ONE, ANY), 0)
    lifecycles.handle(ReleaseRequested(ONE), 0)
    for now_ms in (1_500, 1_600):
        assert lifecycles.handle(TaskActive(ONE), now_ms) == [], "nobody wants it any more"
    assert lifecycles.handle(ClockRead(), 3_499) == []
    assert lifecycles.handle(ClockRead(), 3_500) == [CancelJob(ONE)]
    ended = lifecycles.handle(JobEnded(ONE, "cancelled"), 3_600)
    assert ended == [ReportTerminated(ONE, "released")]


def test_a_job_that_spark_refuses_is_reported_with_the_reason() -> None:
    lifecycles = machine()
    lifecycles.handle(WorkerRequested(ONE, ANY), 0)
    assert lifecycles.handle(JobEnded(ONE, "the context is stopped"), 0) == [
        ReportTerminated(ONE, "the context is stopped")
    ]
    assert lifecycles.live_worker_ids == ()


def test_a_release_of_somebody_who_is_gone_changes_nothing() -> None:
    assert machine().handle(ReleaseRequested(ONE), 0) == []


def test_a_crash_is_reported_with_what_spark_says() -> None:
    lifecycles = started(machine())
    assert lifecycles.handle(JobEnded(ONE, "worker crashed"), 0) == [
        ReportTerminated(ONE, "worker crashed")
    ]


def test_a_task_that_returns_unasked_is_a_termination_too() -> None:
    lifecycles = started(machine())
    assert lifecycles.handle(JobEnded(ONE, None), 0) == [
        ReportTerminated(ONE, "its Spark task returned")
    ]


def test_one_worker_s_end_leaves_the_others_alone() -> None:
    lifecycles = started(started(machine()), TWO)
    lifecycles.handle(JobEnded(ONE, "crash"), 0)
    assert lifecycles.live_worker_ids == (TWO,)
    assert lifecycles.handle(ReleaseRequested(TWO), 0) == [], "it has started: it gets its grace"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["release", "active", "end", "time"]),
        st.integers(min_value=0, max_value=2),
        st.floats(min_value=0, max_value=20_000),
    ),
    max_size=40,
)


@given(STEPS)
def test_every_requested_worker_is_reported_gone_at_most_once_and_never_cancelled_after(
    steps: list[tuple[str, int, float]],
) -> None:
    lifecycles = machine()
    ids = [ResourceId(f"tm-{index}") for index in range(3)]
    log: list[WorkerAction] = []
    now_ms = 0.0
    for worker_id in ids:
        log += lifecycles.handle(WorkerRequested(worker_id, ANY), now_ms)
    for kind, index, elapsed_ms in steps:
        now_ms += elapsed_ms
        worker_id = ids[index]
        event: WorkerEvent
        match kind:
            case "release":
                event = ReleaseRequested(worker_id)
            case "active":
                event = TaskActive(worker_id)
            case "end":
                event = JobEnded(worker_id, "gone")
            case _:
                event = ClockRead()
        log += lifecycles.handle(event, now_ms)
    for worker_id in ids:
        mine = [action for action in log if action.worker_id == worker_id]
        ends = [i for i, action in enumerate(mine) if isinstance(action, ReportTerminated)]
        assert len(ends) <= 1
        if ends:
            assert ends[0] == len(mine) - 1
        assert (worker_id in lifecycles.live_worker_ids) == (not ends)
