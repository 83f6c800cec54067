"""Folders of checkpoints: one of this machine, and one on a file system that only pyarrow knows."""

from pathlib import Path

import pytest
from pyarrow import fs

from headrace.checkpoint.file_systems import register_file_system


@pytest.fixture(params=["local", "object store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "local":
        return str(tmp_path / "checkpoints")
    kept = fs._MockFileSystem()
    register_file_system("kept", lambda uri: (kept, uri.removeprefix("kept://")))
    return "kept://bucket/checkpoints"
