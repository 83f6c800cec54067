"""The name of a shuffle service's directory, which consumers know after a restart too."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.shuffle_service.new_services import new_service


def name_of(directory: Path, seed: int) -> str:
    service = new_service(directory, seed)
    try:
        service.start()
        return service.name
    finally:
        service.close()


def test_a_service_that_starts_again_in_its_directory_has_its_name(tmp_path: Path) -> None:
    assert name_of(tmp_path, 1) == name_of(tmp_path, 2) != name_of(tmp_path / "other", 3)


def test_a_name_that_was_written_in_part_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text = Path.write_text

    def write_half(path: Path, text: str, **options: Any) -> None:
        write_text(path, text[:5], **options)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full, pytest.raises(OSError, match="No space left"):
        full.setattr(Path, "write_text", write_half)
        name_of(tmp_path, 1)
    name = name_of(tmp_path, 2)
    assert len(name) == len("shuffle-service-") + 16
    assert name_of(tmp_path, 3) == name
