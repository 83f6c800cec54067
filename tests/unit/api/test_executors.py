import threading

import pytest

from headrace.api import executors
from headrace.api.executors import (
    create_executor,
    executor_for,
    executor_name,
    known_parallelism,
    runs_elsewhere,
    set_active_executor,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError, HostError
from headrace.core.threads import start_thread
from tests.unit.api.recording import RecordingExecutor, recording


def test_an_unknown_target_lists_the_installed_ones() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'execution\.target' has the value 'yarn'.*there are: "
    ):
        create_executor(Settings({"execution.target": "yarn"}))


def test_targets_of_flink_stand_for_the_executors_that_do_the_same() -> None:
    targets = ("application", "local", "session", "remote", "per-job", "spark")
    names = [executor_name(Settings({"execution.target": target})) for target in targets]
    assert names == ["spark", "spark", "remote", "remote", "per-job", "spark"]
    elsewhere = [runs_elsewhere(Settings({"execution.target": target})) for target in targets]
    assert elsewhere == [False, False, True, True, True, False]
    with pytest.raises(ConfigurationError, match=r"application, local.*session, spark"):
        create_executor(Settings({"execution.target": "yarn"}))


def test_an_active_executor_wins_over_names() -> None:
    with recording() as executor:
        assert executor_for(Settings({"execution.target": "yarn"})) is executor
    set_active_executor(None)
    with pytest.raises(ConfigurationError):
        executor_for(Settings({"execution.target": "yarn"}))


def test_environments_of_one_process_share_the_executor_that_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Settings] = []

    def create(settings: Settings) -> RecordingExecutor:
        made.append(settings)
        return RecordingExecutor()

    monkeypatch.setattr(executors, "create_executor", create)
    monkeypatch.setattr(executors._registry, "made", {})
    settings = Settings({"execution.target": "elsewhere"})
    assert executor_for(settings) is executor_for(settings)
    assert made == [settings]


def test_two_threads_that_submit_first_at_once_share_one_executor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both_ask = threading.Barrier(2)
    made: list[RecordingExecutor] = []

    def create(settings: Settings) -> RecordingExecutor:
        made.append(RecordingExecutor())
        return made[-1]

    monkeypatch.setattr(executors, "create_executor", create)
    monkeypatch.setattr(executors._registry, "made", {})
    found: list[object] = []

    def ask() -> None:
        both_ask.wait(10)
        found.append(executor_for(Settings({"execution.target": "elsewhere"})))

    threads = [start_thread(f"submitter-{number}", ask) for number in range(2)]
    for thread in threads:
        thread.join(10)
    assert found[0] is found[1]
    assert len(made) == 1


def test_asking_for_the_parallelism_does_not_make_the_executor_of_the_first_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executors, "create_executor", lambda _: RecordingExecutor(3))
    monkeypatch.setattr(executors._registry, "made", {})
    assert known_parallelism(Settings({"execution.target": "elsewhere"})) == 3
    assert executors._registry.made == {}


def test_a_host_that_cannot_be_asked_has_no_known_parallelism(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def create(_: Settings) -> RecordingExecutor:
        raise HostError("no Java")

    monkeypatch.setattr(executors, "create_executor", create)
    monkeypatch.setattr(executors._registry, "made", {})
    assert known_parallelism(Settings({"execution.target": "elsewhere"})) is None
