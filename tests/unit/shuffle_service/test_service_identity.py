"""The name of a shuffle service's directory, which consumers know after a restart too."""

from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import ConfigurationError
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


@pytest.mark.parametrize("name", ["identity", "identity.partial"])
def test_links_that_somebody_left_are_not_followed(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine", encoding="ascii")
    directory = tmp_path / "results"
    directory.mkdir(mode=0o700)
    (directory / name).symlink_to(precious)
    assert name_of(directory, 1) == name_of(directory, 2) != "shuffle-service-mine"
    assert precious.read_text(encoding="ascii") == "mine"


@pytest.mark.parametrize("content", [b"", b"\xff" * 16, b"../../../../etc/x", b"0" * 1000])
def test_a_file_that_holds_no_name_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "identity").write_bytes(content)
    with pytest.raises(ConfigurationError, match="does not hold the name of a shuffle service"):
        name_of(tmp_path, 1)
