import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.files import source as file_source
from headrace.connectors.files.source import FileSource, StreamFormat, TextLines
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import Types
from headrace.functions.source import Boundedness, InputStatus
from tests.unit.connectors.connector_contexts import ConnectorContext, Rows, read_all


def lines_of(*paths: Any, parallelism: int = 1, charset: str = "UTF-8") -> list[list[str]]:
    text = StreamFormat.text_line_format(charset)
    source = FileSource.for_record_stream_format(text, *map(str, paths)).build()
    contexts = [
        ConnectorContext(Types.STRING(), subtask_index=index, parallelism=parallelism)
        for index in range(parallelism)
    ]
    return [read_all(source.create_reader(context)) for context in contexts]


def test_lines_come_without_their_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\r\ntwo\n\nfour")
    assert lines_of(file) == [["one", "two", "", "four"]]


def test_a_folder_is_read_through_but_for_hidden_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "sub/c.txt", ".hidden", "_SUCCESS"):
        (tmp_path / name).write_text(name, encoding="utf-8")
    assert lines_of(tmp_path) == [["a.txt", "b.txt", "sub/c.txt"]]


def test_subtasks_share_files_out(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).write_text(name, encoding="utf-8")
    shares = lines_of(tmp_path, parallelism=2)
    assert shares == [["a", "c", "e"], ["b", "d"]]


def test_compressed_files_and_uris_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert lines_of(file.as_uri()) == [["one", "two"]]


def test_other_charsets_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("früh\nspät\n", encoding="utf-16")
    assert lines_of(file, charset="UTF-16") == [["früh", "spät"]]


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere' does not exist"):
        lines_of(tmp_path / "nowhere")


def test_mistakes_are_errors_while_the_program_is_built() -> None:
    with pytest.raises(LookupError):
        StreamFormat.text_line_format("no such charset")
    text = StreamFormat.text_line_format()
    with pytest.raises(ValueError, match="at least one path"):
        FileSource.for_record_stream_format(text)
    with pytest.raises(ValueError, match="above 0"):
        FileSource.for_record_stream_format(text, "a").monitor_continuously(Duration.of_millis(0))


def test_a_watching_source_finds_new_files_and_has_no_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first", encoding="utf-8")
    text = StreamFormat.text_line_format()
    builder = FileSource.for_record_stream_format(text, str(tmp_path))
    source = builder.monitor_continuously(Duration.of_seconds(1)).build()
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    context = ConnectorContext(Types.STRING())
    reader, output = source.create_reader(context), Rows()
    reader.start()
    while reader.poll_next(output) is InputStatus.MORE_AVAILABLE:
        pass
    assert output.values == ["first"]
    (tmp_path / "b").write_text("second", encoding="utf-8")
    assert reader.poll_next(output) is InputStatus.NOTHING_AVAILABLE
    context.clock.advance_ms(1000)
    context.timers.fire_due()
    assert context.wake_count == 1
    while reader.poll_next(output) is InputStatus.MORE_AVAILABLE:
        pass
    assert output.values == ["first", "second"]


class Chunks:
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]

    def read(self, _size: int) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""

    def close(self) -> None:
        pass


@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), max_size=8),
    st.integers(1, 7),
)
def test_lines_do_not_depend_on_where_chunks_end(lines: list[str], size: int) -> None:
    content = "".join(line + "\n" for line in lines).encode("utf-8")
    chunks = [content[start : start + size] for start in range(0, len(content), size)]
    reader, found = TextLines(Chunks(chunks), "UTF-8"), list[str]()
    while (more := reader.next_lines()) is not None:
        found += more
    assert found == lines


def test_large_files_come_in_several_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_source, "CHUNK_SIZE_BYTES", 16)
    file = tmp_path / "a.txt"
    expected = [f"line {number}" for number in range(20)]
    file.write_text("\n".join(expected), encoding="utf-8")
    assert lines_of(file) == [expected]


def test_a_relative_path_means_the_program_s_folder_also_on_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("one", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "a.txt").build()
    monkeypatch.chdir("/")
    assert read_all(source.create_reader(ConnectorContext(Types.STRING()))) == ["one"]
