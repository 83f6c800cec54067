"""place_below: names that lead out of a folder are refused, links too."""

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from headrace.connectors.files.paths import PathOutsideError, place_below

LOCAL: Any = fs.LocalFileSystem()


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "..",
        "../x",
        "a/../../x",
        "a/..",
        "./x",
        "a//b",
        "",
        "a/",
        ".",
        "a/./b",
        "a\0b",
    ],
)
@pytest.mark.parametrize("file_system", [LOCAL, object()], ids=["local", "other"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, file_system: Any) -> None:
    with pytest.raises(PathOutsideError):
        place_below(file_system, "/data/out", name)


@pytest.mark.parametrize(
    "name", ["x", "a/b", "..x", "a/x..", "2026-01-01--10/part-0", ".headrace-x/y"]
)
def test_a_name_below_the_folder_is_its_place(tmp_path: Path, name: str) -> None:
    assert place_below(LOCAL, str(tmp_path), name) == f"{tmp_path}/{name}"


@pytest.mark.parametrize("name", ["link", "link/x", "a/link/x", "a/dangling"])
def test_what_lies_behind_a_link_is_refused(tmp_path: Path, name: str) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    (folder / "a").mkdir(parents=True)
    for link, to in (("link", elsewhere), ("a/link", elsewhere), ("a/dangling", tmp_path / "no")):
        (folder / link).symlink_to(to)
    with pytest.raises(PathOutsideError, match="is a link"):
        place_below(LOCAL, str(folder), name)


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    assert place_below(LOCAL, f"{tmp_path}/out", "x") == f"{tmp_path}/out/x"
