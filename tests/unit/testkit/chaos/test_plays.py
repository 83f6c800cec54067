"""Damage that the chaos suite does to files."""

from pathlib import Path
from typing import Any

import pytest

from testkit.chaos.plays import DAMAGES


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name)
def test_damage_leaves_another_file_than_there_was_or_none(damage: Any, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(200)))
    damage.spoil(file)
    assert not file.exists() or file.read_bytes() != bytes(range(200))
