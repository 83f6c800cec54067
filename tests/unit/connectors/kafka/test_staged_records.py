"""Records of Kafka that wait in files: in a folder that others may write to, nothing of theirs is believed."""

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.connectors.kafka.clients import KafkaRecord
from headrace.connectors.kafka.staged_records import (
    StagedRecords,
    delete_all_staged,
    delete_older_attempts,
    staged_records,
    to_ipc_stream,
)


def test_offsets_that_lead_elsewhere_are_refused_where_no_digest_tells_it(tmp_path: Path) -> None:
    content = bytearray(to_ipc_stream([KafkaRecord("t", None, b"v" * 77, None, 1)]))
    at = content.rindex((77).to_bytes(8, "little"))
    content[at : at + 8] = (1 << 40).to_bytes(8, "little")
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(pa.ArrowInvalid):
        list(staged_records(StagedRecords(b"", str(tmp_path / "file"), 1, 0, 0)))


def test_a_foreign_file_beside_staged_ones_is_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", "0-x-y", "0-0-ab-0.arrow"):
        (tmp_path / name).touch()
    delete_older_attempts(StagedRecords(b"", f"{tmp_path}/0-1-cd-0.arrow", 1, 0, 1))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["0-x-y", "notes.txt"]


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "0-0-ab-0.arrow").touch()
    (tmp_path / "owner").symlink_to(elsewhere)
    delete_all_staged(str(tmp_path / "owner"))
    assert (elsewhere / "0-0-ab-0.arrow").exists()
    delete_all_staged(str(elsewhere))
    assert not elsewhere.exists()
