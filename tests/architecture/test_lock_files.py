"""The lock files: every package at one version, with the hashes of its files, and a setup that asks for them."""

import re
import tomllib

import pytest

from tests.architecture.floor_plan import ROOT

_PINNED = re.compile(r"[a-z0-9._-]+==[^ ;]+( ; .+)?")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@pytest.mark.parametrize(
    ("name", "count_min"), [("base.txt", 10), ("dev.txt", 10), ("docs.txt", 10), ("flink.txt", 2)]
)
def test_every_package_is_pinned_with_hashes(name: str, count_min: int) -> None:
    text = (ROOT / "requirements" / name).read_text(encoding="ascii").replace(" \\\n    ", "\n")
    packages: dict[str, int] = {}
    for line in text.splitlines():
        if _HASH.fullmatch(line):
            packages[next(reversed(packages))] += 1
        else:
            assert _PINNED.fullmatch(line), line
            packages[line] = 0
    assert len(packages) >= count_min
    assert [line for line, hash_count in packages.items() if not hash_count] == []


@pytest.mark.parametrize("name", ["dev.txt", "docs.txt", "flink.txt"])
def test_make_installs_nothing_without_its_hash(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (line,) = re.findall(rf".*-r requirements/{re.escape(name)}.*", makefile.replace("\\\n", " "))
    assert "--require-hashes" in line


def test_no_pyarrow_with_a_known_hole_is_taken() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (needed,) = [one for one in project["dependencies"] if one.startswith("pyarrow")]
    assert needed == "pyarrow>=23.0.1"
    locked = re.findall(
        r"^pyarrow==([0-9.]+)", (ROOT / "requirements" / "base.txt").read_text(), re.M
    )
    assert [tuple(map(int, one.split("."))) >= (23, 0, 1) for one in locked] == [True]
