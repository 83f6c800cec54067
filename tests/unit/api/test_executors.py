import pytest

from headrace.api import executors
from headrace.api.executors import create_executor, executor_for, set_active_executor
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from tests.unit.api.recording import RecordingExecutor, recording


def test_an_unknown_target_lists_the_installed_ones() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'execution\.target' has the value 'yarn'.*there are: "
    ):
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
