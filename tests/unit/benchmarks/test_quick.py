"""The quick comparison: what counts as worse, and what is stored."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import quick
from benchmarks.quick import accept, compare, load_stored, median_ratio


@pytest.mark.parametrize(
    ("now", "text", "is_worse"),
    [(1.0, "same", False), (0.76, "same", False), (0.74, "worse", True), (1.3, "better", False)],
)
def test_a_ratio_that_fell_by_more_than_the_tolerance_is_worse(
    now: float, text: str, is_worse: bool
) -> None:
    (verdict,) = compare({"state": now}, {"state": 1.0}, 25)
    assert (verdict.text, verdict.is_worse) == (text, is_worse)
    assert verdict.change_percent == pytest.approx(100 * (now - 1))


def test_a_question_that_was_not_stored_is_new_and_not_worse() -> None:
    (verdict,) = compare({"state": 0.1}, {"exchange": 1.0}, 25)
    assert (verdict.text, verdict.is_worse, verdict.change_percent) == ("new", False, None)


def test_the_ratio_is_the_median_of_pairs_in_changing_order() -> None:
    asked: list[str] = []

    def taking(name: str, seconds: list[float]) -> Callable[[], float]:
        def take() -> float:
            asked.append(name)
            return seconds.pop(0)

        return take

    ratio = median_ratio(taking("ours", [1, 2, 4]), taking("rival", [2, 2, 2]), turns=3)
    # One turn that something else disturbed (4 s) does not count.
    assert ratio == 1.0
    assert asked == ["ours", "rival", "rival", "ours", "ours", "rival"]


def test_what_is_accepted_replaces_what_was_stored_and_leaves_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "quick.json"
    assert load_stored(file) == {}
    accept({"state": 0.5, "split": 0.25}, file)
    accept({"state": 0.75}, file)
    assert load_stored(file) == {"state": 0.75, "split": 0.25}
    assert {"date", "machine", "load_average"} < json.loads(file.read_text()).keys()


def run(
    monkeypatch: pytest.MonkeyPatch, file: Path, answers: list[float], *arguments: str
) -> list[str]:
    """Run the command with answers in place of measurements; return which questions were asked."""
    asked: list[str] = []

    def ask(question: str) -> float:
        asked.append(question)
        return answers.pop(0)

    monkeypatch.setattr(quick, "ask", ask)
    monkeypatch.setattr(quick, "STORED", file)
    monkeypatch.setattr("sys.argv", ["quick", "--only", "state", *arguments])
    quick.main()
    return asked


def test_the_command_fails_where_a_question_stays_worse(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "quick.json"
    assert run(monkeypatch, file, [1.0], "--accept") == ["state"]
    with pytest.raises(SystemExit, match="worse by more than 25 %"):
        run(monkeypatch, file, [0.5, 0.6])
    # What seemed worse is asked again, and the better answer counts.
    assert run(monkeypatch, file, [0.5, 0.9]) == ["state", "state"]
    assert run(monkeypatch, file, [0.5], "--tolerance", "60") == ["state"]
    assert run(monkeypatch, file, [0.5], "--accept") == ["state"]
    assert load_stored(file) == {"state": 0.5}
