"""Options of several letters behind one dash: the error names the word, and what to write."""

import pytest

from tests.unit.cli.shell import Shell


@pytest.fixture(autouse=True)
def nowhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("list", "-running"), "--running"),
        (("list", "-jobmanager", "host:1"), "--jobmanager"),
        (("savepoint", "-jobmanager", "host:1", "0a"), "--jobmanager"),
        (("run", "-parallelism", "3", "p.py"), "--parallelism"),
        (("info", "-parallelism=3", "p.py"), "--parallelism"),
        (("cluster", "start", "-name", "nightly"), "--name"),
    ],
)
def test_one_that_has_two_dashes_is_named(
    shell: Shell, words: tuple[str, ...], option: str
) -> None:
    refused = shell(*words)
    assert refused.code == 1
    first = refused.err.splitlines()[0]
    assert first.endswith(f"options of several letters begin with two dashes, as in '{option}'")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("checkpoint", "-type", "full", "0a" * 16), "'-type' is read as '-t ype'"),
        (("savepoint", "-cm", "claim", "0a" * 16), "there is no option '-cm'"),
        (("run", "-pyx", "p.py"), "'-pyx' is read as '-p yx'"),
    ],
)
def test_one_that_there_is_not_is_named_whole(
    shell: Shell, words: tuple[str, ...], text: str
) -> None:
    refused = shell(*words)
    assert refused.code == 1
    assert text in refused.err.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "first"),
    [
        # What stands behind the program is its own.
        (("run", "gone.py", "-parallelism", "3"), "error: there is no program 'gone.py'"),
        (("list", "-x"), "error: No such option '-x'."),
        (("run", "-Dnonsense", "p.py"), "error: Invalid value for '-D': 'nonsense' is not"),
    ],
)
def test_other_errors_are_told_as_ever(shell: Shell, words: tuple[str, ...], first: str) -> None:
    assert shell(*words).err.startswith(first)
