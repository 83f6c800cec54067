"""The archive of Spark's classes: what it is named by, and what is left where it cannot be made."""

import sys
from pathlib import Path

import pytest

from headrace.spark.session import class_archive as module
from headrace.spark.session.class_archive import (
    ClassArchiveError,
    class_archive,
    class_archives,
    store_class_archive,
)
from headrace.spark.session.java_runtime import JavaRuntime

TRAINING = (
    'import pathlib, sys; pathlib.Path(sys.argv[1]).touch(); print(\'{"class_path": "a.jar"}\')'
)


def java(executable: Path) -> JavaRuntime:
    return JavaRuntime(executable, 17, None)


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Puts a program in the place of the job on Spark; returns a cache directory that is not there yet."""
    (tmp_path / "quick_training.py").write_text(TRAINING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(module, "TRAINING", "quick_training")
    return tmp_path / "cache"


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    names = {class_archive(java(one), tmp_path).name for one in (first, second, first)}
    assert len(names) == 2


def test_an_archive_appears_when_it_is_whole(trained: Path, tmp_path: Path) -> None:
    text = f"#!{sys.executable}\nimport sys\n" + (
        "if '-version' in sys.argv: sys.exit()\n"
        "path = next(one for one in sys.argv if 'SharedArchiveFile' in one).partition('=')[2]\n"
        "assert sys.argv[-1] == 'a.jar'\n"
        "open(path, 'w').write('classes')\n"
    )
    archive = class_archive(java(tmp_path / "java"), trained)
    steps: list[str] = []
    store_class_archive(java(program(tmp_path / "java", text)), archive, steps.append)
    assert (archive.read_text(), len(steps)) == ("classes", 2)
    assert list(trained.iterdir()) == list(class_archives(trained)) == [archive]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/bin/sh\necho no room left >&2; exit 1\n", "storing classes failed: no room left"),
        ("#!/bin/sh\nexit 0\n", "created no archive"),
        (
            '#!/bin/sh\n[ "$1" = -Xshare:dump ] || { echo mismatch >&2; exit 1; }\n: > "${3#*=}"\n',
            "starting Java 17 from it failed: mismatch",
        ),
    ],
)
def test_an_archive_that_cannot_be_made_leaves_nothing(
    trained: Path, tmp_path: Path, text: str, said: str
) -> None:
    archive = class_archive(java(tmp_path / "java"), trained)
    with pytest.raises(ClassArchiveError, match=said):
        store_class_archive(java(program(tmp_path / "java", text)), archive)
    assert list(trained.iterdir()) == []


def test_a_class_path_with_a_folder_that_holds_files_is_refused_by_name(
    trained: Path, tmp_path: Path
) -> None:
    (tmp_path / "quick_training.py").write_text(TRAINING.replace("a.jar", f"a.jar:{tmp_path}"))
    archive = class_archive(java(tmp_path / "java"), trained)
    with pytest.raises(ClassArchiveError, match=f"{tmp_path} does; .*SPARK_CONF_DIR"):
        store_class_archive(java(tmp_path / "java"), archive)


def test_a_job_that_fails_is_named_with_what_it_said_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "TRAINING", "no_such_training")
    archive = class_archive(java(tmp_path / "java"), tmp_path / "cache")
    with pytest.raises(
        ClassArchiveError, match=r"the small job on Spark failed: .*no_such_training"
    ):
        store_class_archive(java(tmp_path / "java"), archive)
