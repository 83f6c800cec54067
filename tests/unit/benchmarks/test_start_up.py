"""What Spark's page costs at the start is told from pairs of runs that followed each other."""

from pathlib import Path

import pytest

from benchmarks import start_up
from benchmarks.start_up import STEPS, contenders, summary
from headrace.spark.session.class_archive import class_archive
from headrace.spark.session.java_runtime import JavaRuntime, user_cache_directory


def turns(*seen_s: float) -> list[dict[str, float]]:
    return [dict.fromkeys(STEPS, seconds) for seconds in seen_s]


def test_the_cost_of_the_page_is_the_median_difference_of_pairs() -> None:
    found = summary(
        {
            "headrace": turns(5.0, 9.0, 5.0),
            "headrace_page": turns(5.4, 9.2, 9.0),
            "spark": turns(10.0, 18.4, 9.0),
        }
    )
    # Not the difference of medians, which the machine's moods change.
    assert found["headrace_page_cost_s"] == pytest.approx(0.4)
    assert found["headrace_page_seen_s"] == 9.0
    assert found["headrace_ratio"] == 2.0 and found["headrace_page_ratio"] == 1.852


def test_without_the_page_nothing_is_told_of_it() -> None:
    found = summary({"headrace": turns(5.0), "spark": turns(10.0)})
    assert not [name for name in found if "page" in name]


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
