"""Who takes turns in the benchmark of starts."""

from pathlib import Path

import pytest

from benchmarks import start_up
from benchmarks.start_up import contenders
from headrace.spark.session.class_archive import class_archive
from headrace.spark.session.java_runtime import JavaRuntime, user_cache_directory


def test_only_an_archive_that_a_jvm_of_today_maps_makes_a_warmed_up_contender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java = JavaRuntime(tmp_path / "java", 17, None)
    monkeypatch.setattr(start_up, "ensure_java", lambda: java)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive = class_archive(java, user_cache_directory({"XDG_CACHE_HOME": str(tmp_path / "cache")}))
    archive.parent.mkdir(parents=True)
    archive.with_stem("spark-classes-0123456789abcdef").touch()
    assert list(contenders(tmp_path)) == ["headrace", "spark"]
    assert "run 'headrace warm-up' first" in capsys.readouterr().out
    archive.touch()
    assert list(contenders(tmp_path)) == ["headrace", "warmed_up", "spark"]
