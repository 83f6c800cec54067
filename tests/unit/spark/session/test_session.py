"""Facts of a session before Spark starts: the master, the parallelism, and what is refused."""

import os
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.ids import JobId
from headrace.graph.job_graph import JobGraph
from headrace.spark.executor import NotEnoughSlotsError, SparkExecutor
from headrace.spark.host import SparkHost
from headrace.spark.master import refuse_unusable_host_settings
from headrace.spark.session import session
from headrace.spark.session.session import host_session, planned_or_running_master


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_spark_connect_is_refused_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    with pytest.raises(HostError, match=r"Spark Connect cannot host a job.*spark-submit"):
        host_session(Settings())


class Builder:
    """The builder of a Connect client's session, which is what it was given."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def config(self, key: str, value: str) -> "Builder":
        self.given[key] = value
        return self

    def getOrCreate(self) -> dict[str, str]:
        return self.given


def test_a_client_of_spark_connect_gets_a_session_with_the_settings_of_spark_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    monkeypatch.setattr(session.SparkSession, "builder", Builder())
    command_line = {"spark.sql.ansi.enabled": "false", "parallelism.default": "2"}
    monkeypatch.setattr(session, "default_settings", lambda: command_line)
    of_program = {"spark.sql.shuffle.partitions": "3", "spark.sql.ansi.enabled": "true"}
    found: Any = session.spark_session({**of_program, "rest.port": "0"})
    assert found == {"spark.sql.shuffle.partitions": "3", "spark.sql.ansi.enabled": "false"}


@pytest.mark.parametrize(
    "lost", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "no")]
)
def test_a_jvm_that_ends_while_spark_starts_is_named_as_the_cause(
    monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    def fail(*_: object) -> None:
        raise lost

    stopped: list[str] = []
    monkeypatch.setattr(session, "_start", fail)
    monkeypatch.setattr(session, "stop_context", lambda: stopped.append("context"))
    with pytest.raises(HostError, match=r"^Spark did not start on master local.*: its JVM ended"):
        host_session(Settings())
    assert stopped == ["context"]


def test_no_master_is_planned_where_the_size_is_ours_to_choose() -> None:
    assert planned_or_running_master(Settings()) is None


def test_a_named_master_is_planned() -> None:
    settings = Settings({"headrace.spark.master": "spark://host:7077"})
    assert planned_or_running_master(settings) == "spark://host:7077"


@pytest.mark.parametrize(
    ("settings", "parallelism"),
    [
        ({}, os.cpu_count()),
        ({"headrace.spark.slots": "3"}, 3),
        ({"headrace.spark.master": "local[4]"}, 3),
        ({"headrace.spark.master": "local"}, 1),
    ],
)
def test_the_default_parallelism_is_known_without_starting_spark(
    settings: dict[str, str], parallelism: int
) -> None:
    executor = SparkExecutor(Settings(settings))
    assert executor.default_parallelism() == executor.known_parallelism() == parallelism


def test_the_slots_of_a_cluster_are_not_known_before_it_has_started() -> None:
    settings = Settings({"headrace.spark.master": "spark://host:7077"})
    assert SparkExecutor(settings).known_parallelism() is None


@pytest.mark.parametrize(
    ("needed", "slots_per_worker", "advice"),
    [(1, 1, "local[2]"), (4, 1, "local[5]"), (5, 2, "local[4]")],
)
def test_the_advice_for_too_few_slots_is_the_smallest_master_that_has_them(
    needed: int, slots_per_worker: int, advice: str
) -> None:
    error = NotEnoughSlotsError(needed, 0, "local[1]", slots_per_worker)
    assert str(error).endswith(f"own jobs: start with --master '{advice}'")


@pytest.mark.parametrize(("groups", "parallelism"), [(1, 2), (2, 1)])
def test_a_parallelism_that_fits_is_advised_first(groups: int, parallelism: int) -> None:
    message = str(NotEnoughSlotsError(4, 2, "local[3]", 1, groups))
    assert (
        f": run it with '-p {parallelism}' where the program sets none higher, or start with --master 'local[5]'"
        in message
    )


def test_a_setting_of_the_program_that_nobody_reads_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_host(_: SparkExecutor, _settings: object) -> None:
        raise HostError("no host in this test")

    monkeypatch.setattr(SparkExecutor, "_started_host", no_host)
    executor = SparkExecutor(Settings())
    settings = {"paralelism.default": "2", "spark.app.name": "x", "parallelism.default": "2"}
    graph = JobGraph(JobId(b"j" * 16), "job", (), (), settings, "{}")
    for _ in range(2):
        with pytest.raises(HostError):
            executor.submit(graph)
    assert [one.message for one in caplog.records] == [
        "setting 'paralelism.default' is ignored: there is no such option; did you mean parallelism.default?"
    ]


@pytest.mark.parametrize("key", ["restart-strategy.type", "state.backend.type"])
def test_a_word_of_the_program_that_no_option_knows_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(SparkExecutor, "_started_host", lambda _: pytest.fail("Spark would start"))
    graph = JobGraph(JobId(b"j" * 16), "job", (), (), {key: "nonsense"}, "{}")
    with pytest.raises(
        ConfigurationError, match=f"'{key}' has the value 'nonsense': it must be one of"
    ):
        SparkExecutor(Settings()).submit(graph)


def test_an_unknown_shuffle_service_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "ensure_java", lambda: pytest.fail("Spark would start"))
    with pytest.raises(ConfigurationError, match=r"nonsense.*known names: credit-based, remote"):
        session._create(Settings({"shuffle-service-factory.class": "nonsense"}))


@pytest.mark.parametrize(
    ("option", "value"),
    [("factory.class", "nonsense"), ("port", "99999"), ("interval", "soon"), ("prot", "9249")],
)
def test_reporters_that_cannot_be_are_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    monkeypatch.setattr(session, "ensure_java", lambda: pytest.fail("Spark would start"))
    key = f"metrics.reporter.mine.{option}"
    settings = {"metrics.reporter.mine.factory.class": "prometheus", key: value}
    for begin in (session._create, SparkHost):
        with pytest.raises(ConfigurationError, match=key):
            begin(Settings(settings))
    with pytest.raises(ConfigurationError, match=key):
        refuse_unusable_host_settings(settings)


@pytest.mark.parametrize("cores", ["-1", "nan", "inf"])
def test_cores_that_no_task_manager_can_take_are_refused_before_spark_starts(cores: str) -> None:
    with pytest.raises(ConfigurationError, match=r"taskmanager\.cpu\.cores"):
        SparkHost(Settings({"taskmanager.cpu.cores": cores}))
