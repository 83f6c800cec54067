"""The data source `headrace` finds its log by what it is given, wherever Spark has Python work."""

from pathlib import Path

import pytest

from headrace.connectors.dataframe.batch_log import BatchLogError
from headrace.spark.dataframes.log_source import HeadraceSource

UUID = "9d1c4b3e-5a63-4a52-8a0f-2f1f0f6b7c11"


@pytest.mark.parametrize("variable", [None, "default"])
def test_a_relative_path_is_one_from_where_the_driver_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPARK_JOB_ARTIFACT_UUID", raising=False)
    if variable is not None:
        monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", variable)
    assert HeadraceSource({"path": "log"}).log.path == str(tmp_path / "log")


def test_a_relative_path_is_refused_in_a_folder_that_ends_with_a_session_of_spark_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", UUID)
    with pytest.raises(BatchLogError, match=rf"^'log' is a relative path.*{tmp_path}.*absolute"):
        HeadraceSource({"path": "log"})
    for place in (str(tmp_path / "log"), (tmp_path / "log").as_uri()):
        assert HeadraceSource({"path": place}).log.path == place
