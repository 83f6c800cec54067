"""Folders of checkpoints: one of this machine, and one on a file system that only pyarrow knows."""

from pathlib import Path

import pytest
from pyarrow import fs

from headrace.checkpoint.storage.file_systems import register_file_system


@pytest.fixture(params=["local", "object store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "checkpoints")
    return _in_object_store("kept://bucket/checkpoints")


@pytest.fixture
def folder_with_options() -> str:
    return _in_object_store("kept://bucket/checkpoints?region=eu.0")


def _in_object_store(uri: str) -> str:
    kept = fs._MockFileSystem()
    register_file_system("kept", lambda uri: (kept, uri.partition("?")[0].removeprefix("kept://")))
    return uri
