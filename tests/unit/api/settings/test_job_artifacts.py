"""Files that travel with a job are read where the job is submitted, and refused where they cannot be."""

import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from headrace.api.settings.job_artifacts import (
    job_artifacts,
    with_carried_python_files,
    with_environment,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.ids import BlobKey, JobId
from headrace.graph.job_graph import ArtifactKind, JobArtifact, JobGraph, blob_keys, offload


def read(**settings: object) -> tuple[JobArtifact, ...]:
    keys = {
        "requirements": "python.requirements",
        "archives": "python.archives",
        "cached": "pipeline.cached-files",
        "size_max": "headrace.artifacts.size-max",
    }
    return job_artifacts(Settings({keys[name]: str(value) for name, value in settings.items()}))


def test_each_setting_names_files_of_a_kind(tmp_path: Path) -> None:
    for name in ("r.txt", "a.zip", "f.csv"):
        (tmp_path / name).write_text(name)
    (tmp_path / "cache").mkdir()
    found = read(
        requirements=f"{tmp_path}/r.txt#{tmp_path}/cache",
        archives=f"{tmp_path}/a.zip,{tmp_path}/a.zip#named",
        cached=f"name:rates,path:{tmp_path}/f.csv,executable:true",
    )
    assert found[-1].is_executable
    assert [(each.kind, each.name) for each in found] == [
        (ArtifactKind.REQUIREMENTS, "requirements"),
        (ArtifactKind.PACKAGES, "packages"),
        (ArtifactKind.ARCHIVE, "a.zip"),
        (ArtifactKind.ARCHIVE, "named"),
        (ArtifactKind.FILE, "rates"),
    ]


def test_equal_folders_make_equal_archives(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder / "inner").mkdir(parents=True)
        (tmp_path / folder / "inner" / "a.txt").write_text("a")
    one, two = (read(cached=f"name:n,path:{tmp_path / name}")[0] for name in ("one", "two"))
    assert one.kind is ArtifactKind.ARCHIVE and one.content == two.content
    assert zipfile.ZipFile(BytesIO(one.content)).namelist() == ["inner/a.txt"]


def test_a_file_that_is_not_there_or_no_archive_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.rar").touch()
    with pytest.raises(ConfigurationError, match="no such file or folder on this machine"):
        read(archives=tmp_path / "nowhere.zip")
    with pytest.raises(ConfigurationError, match="an archive ends in"):
        read(archives=tmp_path / "a.rar")
    with pytest.raises(ConfigurationError, match="not a folder of packages"):
        read(requirements=f"{tmp_path}/a.rar#{tmp_path}/a.rar")


def test_two_files_of_one_name_and_too_many_bytes_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"x" * 600)
    with pytest.raises(ConfigurationError, match="two files of the job have this name"):
        read(archives=f"{tmp_path}/a.zip,{tmp_path}/a.zip")
    with pytest.raises(ConfigurationError, match="larger than 1"):
        read(archives=f"{tmp_path}/a.zip,{tmp_path}/a.zip#b", size_max="1000")


def test_files_leave_the_graph_as_blobs_however_small() -> None:
    file = JobArtifact(ArtifactKind.FILE, "rates", "rates.csv", b"1,2")
    graph = JobGraph(JobId(b"j" * 16), "job", (), (), {}, artifacts=(file,))
    moved = offload(graph, 1 << 20)
    key = BlobKey.of(b"1,2")
    assert moved.blobs == {key: b"1,2"}
    assert blob_keys(moved.graph) == (key,)
    [left] = moved.graph.artifacts
    assert (left.content, left.key) == (b"", key)
    assert offload(moved.graph, 0).blobs == {}


def test_python_files_travel_with_a_job_in_place_of_their_paths(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text("x = 1")
    (tmp_path / "lib.zip").write_bytes(b"zip")
    for folder in ("pricing", "plain"):
        (tmp_path / folder / "__pycache__").mkdir(parents=True)
        (tmp_path / folder / "__pycache__" / "a.pyc").touch()
        (tmp_path / folder / "a.py").touch()
    (tmp_path / "pricing" / "__init__.py").touch()
    files = [tmp_path / name for name in ("rules.py", "lib.zip", "pricing", "plain")]
    graph = JobGraph(JobId(b"j" * 16), "job", (), (), {"python.files": "here", "other": "kept"})
    carried = with_carried_python_files(graph, files)
    assert carried.settings == {"other": "kept"}
    assert [(each.kind, each.file_name) for each in carried.artifacts] == [
        (ArtifactKind.PYTHON_FILE, "rules.py"),
        (ArtifactKind.PYTHON_FILE, "lib.zip"),
        (ArtifactKind.PYTHON_FOLDER, "pricing.zip"),
        (ArtifactKind.PYTHON_FOLDER, "plain.zip"),
    ]
    assert [
        zipfile.ZipFile(BytesIO(each.content)).namelist() for each in carried.artifacts[2:]
    ] == [
        ["pricing/__init__.py", "pricing/a.py"],
        ["a.py"],
    ]


def test_python_files_count_with_the_other_files_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_bytes(b"x" * 600)
    other = JobArtifact(ArtifactKind.FILE, "a", "a", b"x" * 600)
    settings = {"headrace.artifacts.size-max": "1000 b"}
    graph = JobGraph(JobId(b"j" * 16), "job", (), (), settings, artifacts=(other,))
    with pytest.raises(ConfigurationError, match=r"python\.files.*size-max"):
        with_carried_python_files(graph, [tmp_path / "rules.py"])


ARCHIVED = {"python.archives": "/files/venv.zip", "python.executable": "venv.zip/bin/python"}
JOB = JobId(b"j" * 16)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        (ARCHIVED, "venv.zip/bin/python"),
        ({**ARCHIVED, "python.executable": "./venv.zip/bin/python"}, "venv.zip/bin/python"),
        ({"python.archives": "a.zip#venv", "python.executable": "venv/bin/python"}, "venv/bin/python"),
        ({"python.archives": "venv.zip", "python.executable": "/opt/venv.zip/bin/python"}, ""),
        ({"python.executable": "venv.zip/bin/python"}, ""),
    ],
)  # fmt: skip
def test_an_interpreter_in_an_archive_is_an_environment_of_the_job(
    settings: dict[str, str], what: str
) -> None:
    graph = with_environment(JobGraph(JOB, "job", (), (), settings))
    assert graph.python_executable == (f"environment:{what}@{JOB}" if what else "")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, f"environment:requirements@{JOB}"),
        ({"python.executable": "/opt/python"}, f"environment:/opt/python@{JOB}"),
        ({"execution.runtime-mode": "BATCH"}, ""),
    ],
)
def test_requirements_are_an_environment_of_the_job_where_it_has_task_managers(
    settings: dict[str, str], name: str
) -> None:
    requirements = JobArtifact(ArtifactKind.REQUIREMENTS, "requirements", "r.txt", b"pandas")
    graph = JobGraph(JOB, "job", (), (), settings, artifacts=(requirements,))
    assert with_environment(graph).python_executable == name


def test_in_batch_mode_an_interpreter_in_an_archive_is_refused_with_what_to_do() -> None:
    graph = JobGraph(JOB, "job", (), (), {**ARCHIVED, "execution.runtime-mode": "BATCH"})
    with pytest.raises(ConfigurationError, match="run the job in STREAMING mode"):
        with_environment(graph)
