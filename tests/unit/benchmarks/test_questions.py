"""Benchmarks that ask several questions: which are asked, and what is said of one that fails."""

import sys
from pathlib import Path

import pytest

from benchmarks.questions import ask

QUESTIONS = ("first", "second", "third")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package whose modules note that they ran; the second fails."""
    folder = tmp_path / "asked"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name in QUESTIONS:
        end = "raise SystemExit(3)" if name == "second" else ""
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / name)!r}, 'w').close()\n{end}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["asked", *arguments])
    ask("asked", QUESTIONS, "What is asked?")


def test_the_rest_is_asked_after_one_that_fails_and_that_one_is_named(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit, match="not measured: second"):
        call(monkeypatch)
    assert [name for name in QUESTIONS if (package / name).exists()] == list(QUESTIONS)


def test_only_what_is_named_is_asked(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call(monkeypatch, "third")
    assert [name for name in QUESTIONS if (package / name).exists()] == ["third"]


def test_a_question_that_is_not_there_is_refused_with_those_that_are(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        call(monkeypatch, "fourth")
    assert "no question fourth; there are first, second, third" in capsys.readouterr().err
    assert not (package / "first").exists()
