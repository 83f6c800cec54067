"""Names and objects of entry points, from those that this package declares itself."""

import importlib.metadata
from pathlib import Path

import pytest

from headrace.core.entry_points import entry_point_names, load_entry_point


def test_names_of_a_group_are_sorted_and_a_group_may_be_empty() -> None:
    assert "spark" in entry_point_names("headrace.executors")
    assert entry_point_names("headrace.no_such_group") == ()


def test_a_name_gives_what_it_stands_for() -> None:
    executor_class = load_entry_point("headrace.executors", "spark")
    assert executor_class.__name__ == "SparkExecutor"


def test_a_name_that_nobody_offers_is_a_lookup_error() -> None:
    with pytest.raises(LookupError, match=r"'flink' .* 'headrace\.executors'"):
        load_entry_point("headrace.executors", "flink")


def test_a_package_on_a_folder_that_is_added_to_the_path_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "extra-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: extra\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[headrace.executors]\nextra = pathlib:Path\n")
    assert "extra" not in entry_point_names("headrace.executors")
    monkeypatch.syspath_prepend(tmp_path)
    assert "extra" in entry_point_names("headrace.executors")
    assert load_entry_point("headrace.executors", "extra") is Path


def test_what_is_installed_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = entry_point_names("headrace.executors")
    monkeypatch.setattr(importlib.metadata, "entry_points", None)
    assert entry_point_names("headrace.executors") == names
