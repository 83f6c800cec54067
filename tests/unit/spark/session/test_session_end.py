"""A session that ends: what runs in it ends before it, and the next job gets another host."""

import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.core.context import SparkContext

from headrace.core.config import Settings
from headrace.core.errors import HostError
from headrace.spark.executor import SparkExecutor
from headrace.spark.session import session
from headrace.spark.session.jvm import ApplicationSlots, JvmGoneError, is_stopped, stop_context
from headrace.spark.session.session import before_stop


class FakeContext(SparkContext):
    """Notes what happens to it; there is no JVM behind it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._jsc: Any = object()

    def stop(self) -> None:
        self.events.append("stopped")
        self._jsc = None


def test_the_action_comes_before_the_stop_and_once() -> None:
    context = FakeContext()
    before_stop(context, lambda: context.events.append("action"))
    context.stop()
    context.stop()
    assert context.events == ["action", "stopped", "stopped"]


def test_an_action_that_was_taken_back_does_not_run() -> None:
    context = FakeContext()
    before_stop(context, lambda: context.events.append("action"))()
    context.stop()
    assert context.events == ["stopped"]


def test_a_context_is_stopped_although_the_action_fails(caplog: pytest.LogCaptureFixture) -> None:
    context = FakeContext()

    def fail() -> None:
        raise ValueError("nobody answers")

    before_stop(context, fail)
    context.stop()
    assert context.events == ["stopped"]
    assert "could not be ended" in caplog.text


def test_a_context_whose_jvm_ended_while_it_started_is_stopped_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Orphan(FakeContext):
        def stop(self) -> None:
            is_orphan = self._jsc is not None
            super().stop()
            if is_orphan:
                raise ConnectionRefusedError(111, "Connection refused")

    context = Orphan()
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    stop_context()
    assert context.events == ["stopped", "stopped"]


def test_a_stopped_context_is_a_host_that_is_gone_and_no_broken_call() -> None:
    context = FakeContext()
    assert not is_stopped(context)
    context.stop()
    assert is_stopped(context)
    context.getConf = lambda: {}  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(JvmGoneError, match="its SparkSession was stopped"):
        ApplicationSlots(context)


class FakeSession:
    """A SparkSession of Headrace's over a context."""

    def __init__(self, context: FakeContext) -> None:
        self.sparkContext = context

    def stop(self) -> None:
        self.sparkContext.stop()


def test_a_session_of_ours_that_the_program_stopped_takes_no_other_session_s_jvm_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = FakeContext()
    spark: Any = FakeSession(context)
    ours = session.HostSession(spark, is_borrowed=False)
    spark.stop()
    monkeypatch.setattr(session, "active_context", FakeContext)
    monkeypatch.setattr(session, "stop_jvm", lambda: context.events.append("jvm stopped"))
    ours.stop()
    assert context.events == ["stopped"]
    monkeypatch.setattr(session, "active_context", lambda: None)
    ours.stop()
    assert context.events == ["stopped", "jvm stopped"]


def test_a_session_of_ours_ends_with_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    context = FakeContext()
    spark: Any = FakeSession(context)
    monkeypatch.setattr(session, "active_context", lambda: None)
    monkeypatch.setattr(session, "stop_jvm", lambda: context.events.append("jvm stopped"))
    session.HostSession(spark, is_borrowed=False).stop()
    assert context.events == ["stopped", "jvm stopped"]


class FakeHost:
    """A host whose session the test ends."""

    made: list["FakeHost"]
    slot_count = 5

    def __init__(self, settings: Settings, *, log_folder: Path | None = None) -> None:
        self.has_lost_session = False
        self.failure: BaseException | None = None
        self.is_closed = False
        self.made.append(self)

    def start(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> list[FakeHost]:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    FakeHost.made = []
    monkeypatch.setattr("headrace.spark.host.SparkHost", FakeHost)
    return FakeHost.made


def executor_on_a_cluster() -> SparkExecutor:
    """One that must have a host to say how many slots there are."""
    return SparkExecutor(Settings({"headrace.spark.master": "spark://host:7077"}))


def test_a_job_after_the_end_of_the_session_gets_another_host(hosts: list[FakeHost]) -> None:
    made = executor_on_a_cluster()
    assert made.default_parallelism() == made.default_parallelism() == 5
    assert len(hosts) == 1
    hosts[0].has_lost_session = True
    assert made.default_parallelism() == 5
    assert [one.is_closed for one in hosts] == [True, False]


def test_the_end_takes_the_handler_back_after_a_lost_session_too(hosts: list[FakeHost]) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        made = executor_on_a_cluster()
        made.default_parallelism()
        hosts[0].has_lost_session = True
        made.default_parallelism()
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        made.close()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_job_after_the_end_of_the_jvm_fails_at_once(hosts: list[FakeHost]) -> None:
    made = executor_on_a_cluster()
    made.default_parallelism()
    hosts[0].failure = HostError("the Spark application is gone")
    with pytest.raises(HostError, match="the Spark application is gone"):
        made.default_parallelism()
