"""The built dashboard is of its sources, small, and asks for routes of the server's table alone."""

import json
import re
from pathlib import Path

from headrace.rest.routes import ROUTES
from tests.architecture.floor_plan import ROOT
from tools.dashboard_sources import (
    BUILT,
    GZIPPED_BYTES_MAX,
    RECORD,
    SOURCES,
    build_record,
    gzipped_bytes,
    problems,
)


def copy_of(folder: Path, **files: str) -> Path:
    """A folder with the files named, `_` for the dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def recorded(sources: Path, built: Path) -> Path:
    (built / RECORD).write_text(build_record(sources, built))
    return built


def test_the_built_dashboard_is_of_its_sources() -> None:
    assert problems(SOURCES, BUILT) == []


def test_the_dashboard_is_small() -> None:
    assert 20_000 < gzipped_bytes(BUILT) < GZIPPED_BYTES_MAX


def test_a_source_that_changed_after_the_build_is_told(tmp_path: Path) -> None:
    sources = copy_of(tmp_path / "sources", main_ts="a")
    built = recorded(sources, copy_of(tmp_path / "built", index_html="<p>"))
    assert problems(sources, built) == []
    (sources / "main.ts").write_text("b")
    assert [problem.partition(": ")[2] for problem in problems(sources, built)] == [
        "run make dashboard"
    ]


def test_a_built_file_that_was_changed_by_hand_is_told(tmp_path: Path) -> None:
    sources = copy_of(tmp_path / "sources", main_ts="a")
    built = recorded(sources, copy_of(tmp_path / "built", index_html="<p>", main_js="a"))
    assert problems(sources, built) == []
    (built / "main.js").write_text("a // x")
    assert [problem.partition(": ")[2] for problem in problems(sources, built)] == [
        "run make dashboard"
    ]


def test_a_test_of_the_sources_may_change_without_a_build(tmp_path: Path) -> None:
    sources = copy_of(tmp_path / "sources", main_ts="a")
    built = recorded(sources, copy_of(tmp_path / "built", index_html="<p>"))
    (sources / "main.test.ts").write_text("a test")
    assert problems(sources, built) == []


def test_a_page_that_loads_from_another_host_is_told(tmp_path: Path) -> None:
    sources = copy_of(tmp_path / "sources", main_ts="a")
    page = '<link href="https://fonts.example/a.css">'
    built = recorded(sources, copy_of(tmp_path / "built", index_html=page))
    assert ["another host" in problem for problem in problems(sources, built)] == [True]


def test_the_dashboard_uses_routes_of_the_servers_table_alone() -> None:
    listed = json.loads((SOURCES / "routes.json").read_text("utf-8"))["routes"]
    used = {f"{each['method']} {each['path']}" for each in listed}
    served = {f"{route.method} {route.path}" for route in ROUTES}
    assert len(used) == len(listed) > 30
    assert used - served == set()


def test_the_lock_file_of_the_dashboard_names_no_host() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text("utf-8"))
    assert len(lock["packages"]) > 5
    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []


def test_licences_of_all_packages_in_the_script_are_shipped() -> None:
    packages = json.loads((SOURCES / "package.json").read_text("utf-8"))["dependencies"]
    licences = (BUILT / "licenses.txt").read_text("utf-8")
    assert len(packages) >= 3
    assert [
        name for name in packages if not re.search(rf"^{name} [0-9.]+ \(", licences, re.M)
    ] == []


def test_every_file_that_sends_requests_is_the_client() -> None:
    found = [
        file.relative_to(ROOT / "dashboard").as_posix()
        for file in sorted((SOURCES / "src").rglob("*.ts*"))
        if re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|EventSource", file.read_text("utf-8"))
    ]
    assert found == ["src/api.ts"]
