"""The faulty file system does what its control file says, from then on, and leaves signs of it."""

from pathlib import Path

import pytest

from testkit.faulty_file_system import open_faulty


def test_a_control_file_sets_faults_and_heals_them_while_the_storage_is_in_use(
    tmp_path: Path,
) -> None:
    control, struck = tmp_path / "control", tmp_path / "control.struck"
    system, folder = open_faulty(f"faulty://{tmp_path}/files?control={control}")
    system.create_dir(f"{folder}/one")
    control.write_text("fail_writes=1")
    for name in ("two", "three"):
        with pytest.raises(OSError, match="Input/output error"):
            system.create_dir(f"{folder}/{name}")
    assert struck.stat().st_size == 2
    control.write_text("")
    system.create_dir(f"{folder}/four")
    assert sorted(path.name for path in Path(folder).iterdir()) == ["four", "one"]
    assert struck.stat().st_size == 2


def test_a_full_storage_takes_no_byte_and_says_so(tmp_path: Path) -> None:
    control = tmp_path / "control"
    system, folder = open_faulty(f"faulty://{tmp_path}/files?control={control}&run=full")
    system.create_dir(folder)
    control.write_text("full_after=0")
    with (
        pytest.raises(OSError, match="No space left"),
        system.open_output_stream(f"{folder}/file") as stream,
    ):
        stream.write(b"content")
    assert (tmp_path / "control.struck").stat().st_size >= 1


def test_a_slow_storage_leaves_a_sign_for_each_operation(tmp_path: Path) -> None:
    control = tmp_path / "control"
    system, folder = open_faulty(f"faulty://{tmp_path}/files?control={control}&run=slow")
    control.write_text("slow_ms=1")
    system.create_dir(f"{folder}/one")
    system.get_file_info(f"{folder}/one")
    assert (tmp_path / "control.struck").stat().st_size == 2
