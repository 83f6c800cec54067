import gzip
import itertools
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.files.formats import line_blocks, text_lines
from headrace.connectors.files.formats.columnar_formats import (
    CsvReaderFormat,
    JsonLinesFormat,
    ParquetColumnarRowInputFormat,
)
from headrace.connectors.files.formats.splits import (
    FileChangedError,
    FileReaderFormat,
    FileSplit,
    splits_of_file,
)
from headrace.connectors.files.formats.text_lines import CharsetError, StreamFormat, TextLines
from headrace.connectors.files.source.file_source import FileSource
from headrace.core.errors import ProgramError, UserCodeError
from headrace.core.types.time_values import Duration
from headrace.core.types.type_info import Types
from headrace.functions.source import Boundedness
from tests.unit.connectors.replays import Life, SourceJob, lives, rows_of


def run(source: FileSource, parallelism: int = 1) -> list[list[Any]]:
    job = SourceJob(source, parallelism, source.produced_type)
    job.run_to_end()
    return [output.values for output in job.outputs]


def lines_of(*paths: Any, parallelism: int = 1, charset: str = "UTF-8") -> list[list[str]]:
    text = StreamFormat.text_line_format(charset)
    return run(FileSource.for_record_stream_format(text, *map(str, paths)).build(), parallelism)


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
    assert sorted(line for share in shares for line in share) == list("abcde")
    assert all(share for share in shares)


def test_compressed_files_and_uris_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert lines_of(file.as_uri()) == [["one", "two"]]


def test_other_charsets_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("früh\nspät\n", encoding="utf-16")
    assert lines_of(file, charset="UTF-16") == [["früh", "spät"]]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("charset", "beginning"), [("UTF-8", b"good\n" * 100_000), ("UTF-16-LE", b"a\0\n\0" * 99)]
)
def test_a_file_in_another_charset_is_named_with_the_place_of_its_first_wrong_byte(
    tmp_path: Path, charset: str, beginning: bytes, suffix: str
) -> None:
    file = tmp_path / f"a.txt{suffix}"
    content = beginning + b"\xff\xdc\xff\xdc\n\0"
    file.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(CharsetError, match=rf"a\.txt{suffix}' is not {charset}: 0xff.* at byte"):
        lines_of(file, charset=charset)
    with pytest.raises(CharsetError) as raised:
        lines_of(file, charset=charset)
    assert raised.value.offset == len(beginning)


@pytest.mark.parametrize(
    ("name", "content", "offset"),
    [
        ("a.csv", b"name,n\nJos\xe9,1\n", 10),
        ("a.csv", b"n\xe9,n\nJos,1\n", 1),
        ("a.json", b'{"name": "x", "n": 1}\n{"name": "Jos\xe9", "n": 1}\n', 35),
    ],
)
def test_columns_in_another_charset_are_told_with_file_and_place(
    tmp_path: Path, name: str, content: bytes, offset: int
) -> None:
    (tmp_path / name).write_bytes(content)
    row_type = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()])
    of_name = {"a.csv": CsvReaderFormat(row_type), "a.json": JsonLinesFormat(row_type)}
    source = FileSource.for_bulk_file_format(of_name[name], str(tmp_path / name)).build()
    with pytest.raises(CharsetError, match=rf"{name}' is not UTF-8: 0xe9 at byte {offset} cannot"):
        run(source)


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UserCodeError,
        match=r"^SourcePathNotFoundError: .*nowhere' does not exist \(in operator 'source', ",
    ):
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
    job = SourceJob(source, 1, Types.STRING())
    job.poll(10)
    assert job.rows == ["first"]
    (tmp_path / "b").write_text("second", encoding="utf-8")
    job.poll(10)
    assert job.rows == ["first"]
    job.advance(1000)
    job.poll(10)
    assert job.rows == ["first", "second"]
    assert job.has_ended == [False]


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
    monkeypatch.setattr(line_blocks, "CHUNK_SIZE_BYTES", 16)
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
    assert run(source) == [["one"]]


def test_a_watching_source_goes_on_without_the_files_that_it_knows(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name, encoding="utf-8")
    text = StreamFormat.text_line_format()
    builder = FileSource.for_record_stream_format(text, str(tmp_path))
    source = builder.monitor_continuously(Duration.of_seconds(1)).build()
    job = SourceJob(source, 1, Types.STRING())
    job.poll(4)
    rows, snapshot = job.rows, job.checkpoint(1)
    assert rows == ["a"]
    (tmp_path / "c").write_text("c", encoding="utf-8")
    after = SourceJob(source, 2, Types.STRING(), snapshot)
    after.poll(10)
    assert sorted(rows + after.rows) == ["a", "b", "c"]


def test_later_listings_that_fail_are_told_once_and_made_up_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    text = StreamFormat.text_line_format()
    builder = FileSource.for_record_stream_format(text, str(folder))
    job = SourceJob(builder.monitor_continuously(Duration.of_seconds(1)).build(), 1, Types.STRING())
    folder.rmdir()
    job.advance(1000)
    job.advance(1000)
    assert caplog.text.count("looking for new files failed") == 1
    folder.mkdir()
    (folder / "a").write_text("late", encoding="utf-8")
    job.advance(1000)
    job.poll(10)
    assert job.rows == ["late"]


def write_text(folder: str, name: str, content: bytes) -> str:
    path = os.path.join(folder, name)
    Path(path).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


@pytest.mark.slow
@given(
    lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=9)),
    ends_with_newline=st.booleans(),
    split_size=st.integers(1, 40),
    chunk_size=st.integers(1, 20),
    charset=st.sampled_from(["UTF-8", "UTF-16"]),
    suffix=st.sampled_from([".txt", ".gz"]),
    attempts=lives(),
)
def test_each_line_comes_once_however_files_are_cut_and_jobs_fail(
    lines: list[str],
    ends_with_newline: bool,
    split_size: int,
    chunk_size: int,
    charset: str,
    suffix: str,
    attempts: list[Life],
) -> None:
    text = "\n".join(lines) + ("\n" if ends_with_newline and lines else "")
    expected = text.split("\n")
    if expected[-1] == "":
        expected.pop()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_blocks, "CHUNK_SIZE_BYTES", chunk_size)
        patch.setattr(text_lines, "CHUNK_SIZE_BYTES", chunk_size)
        path = write_text(folder, "a" + suffix, text.encode(charset))
        builder = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset), path)
        source = builder.with_split_size(split_size).build()
        assert sorted(rows_of(source, attempts, Types.STRING())) == sorted(expected)


ROW = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def write_rows(folder: str, kind: str, count: int) -> tuple[FileReaderFormat, str]:
    """A file of `count` rows with one column more than is read, and in another order."""
    rows = [{"name": f"n{index}", "extra": index / 2, "id": index} for index in range(count)]
    if kind == "parquet":
        path = os.path.join(folder, "a.parquet")
        schema = pa.schema([("name", pa.string()), ("extra", pa.float64()), ("id", pa.int32())])
        pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=5)
        return ParquetColumnarRowInputFormat(ROW, batch_size=3), path
    if kind.startswith("csv"):
        lines = ["name,extra,id", *(f"{row['name']},{row['extra']},{row['id']}" for row in rows)]
        content = "\r\n".join(lines) + "\r\n"
        return CsvReaderFormat(ROW), write_text(folder, "a" + kind[3:], content.encode())
    content = "".join(json.dumps(row) + "\n" for row in rows)
    return JsonLinesFormat(ROW), write_text(folder, "a.jsonl", content.encode())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "json"])
def test_each_row_of_a_columnar_format_comes_once_however_jobs_fail(kind: str) -> None:
    @given(count=st.integers(0, 40), split_size=st.integers(40, 400), attempts=lives())
    def check(count: int, split_size: int, attempts: list[Life]) -> None:
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setattr(line_blocks, "CHUNK_SIZE_BYTES", 37)
            file_format, path = write_rows(folder, kind, count)
            builder = FileSource.for_bulk_file_format(file_format, path)
            rows = rows_of(builder.with_split_size(split_size).build(), attempts, ROW)
        assert sorted(tuple(row) for row in rows) == [(n, f"n{n}") for n in range(count)]

    check()


def test_the_row_groups_of_a_parquet_file_are_shared_out(tmp_path: Path) -> None:
    file_format, path = write_rows(str(tmp_path), "parquet", 500)
    size = os.path.getsize(path)
    source = FileSource.for_bulk_file_format(file_format, path).with_split_size(size // 4).build()
    shares = [len(share) for share in run(source, parallelism=2)]
    assert sum(shares) == 500
    assert min(shares) > 100


def test_all_columns_of_a_parquet_file_can_be_taken_with_their_types(tmp_path: Path) -> None:
    _, path = write_rows(str(tmp_path), "parquet", 2)
    source = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat.of_file(path), path
    ).build()
    assert [row.as_dict() for row in run(source)[0]] == [
        {"name": "n0", "extra": 0.0, "id": 0},
        {"name": "n1", "extra": 0.5, "id": 1},
    ]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_column_that_a_file_lacks_is_named(kind: str, tmp_path: Path) -> None:
    _, path = write_rows(str(tmp_path), kind, 2)
    row = Types.ROW_NAMED(["id", "price"], [Types.LONG(), Types.DOUBLE()])
    made = ParquetColumnarRowInputFormat(row) if kind == "parquet" else CsvReaderFormat(row)
    with pytest.raises(ValueError, match=r"no column 'price'; .*name, extra, id"):
        run(FileSource.for_bulk_file_format(made, path).build())


def test_a_line_that_is_no_row_is_blamed_on_its_file(tmp_path: Path) -> None:
    path = write_text(str(tmp_path), "a.csv", b"id,name\n1,one\ntwo,two\n")
    with pytest.raises(ValueError, match=r"a\.csv', from byte .*two"):
        run(FileSource.for_bulk_file_format(CsvReaderFormat(ROW), path).build())


def test_columns_without_a_header_are_taken_in_their_order(tmp_path: Path) -> None:
    path = write_text(str(tmp_path), "a.csv", b"1;one\n2;two\n")
    file_format = CsvReaderFormat(ROW, delimiter=";", has_header=False)
    source = FileSource.for_bulk_file_format(file_format, path).build()
    assert [tuple(row) for row in run(source)[0]] == [(1, "one"), (2, "two")]


def test_an_empty_number_is_null_and_an_empty_text_is_empty(tmp_path: Path) -> None:
    path = write_text(str(tmp_path), "a.csv", b"id,name\n,NA\n2,\n")
    source = FileSource.for_bulk_file_format(CsvReaderFormat(ROW), path).build()
    assert [tuple(row) for row in run(source)[0]] == [(None, "NA"), (2, "")]


def test_columnar_formats_want_rows_with_names() -> None:
    with pytest.raises(ProgramError, match="JsonLinesFormat reads rows with named columns"):
        JsonLinesFormat(Types.LONG())


@pytest.mark.parametrize(
    ("change", "reason"),
    [(b"longer than it was", ""), (b"x", "has become shorter"), (None, "has gone")],
)
def test_a_file_may_grow_but_not_change_after_it_was_found(
    change: bytes | None, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n2\n")
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path)).build()
    job = SourceJob(source, 1, Types.STRING())
    if change is None:
        path.unlink()
    else:
        path.write_bytes(b"1\n2\n" + change if not reason else change)
    if reason:
        with pytest.raises(FileChangedError, match=reason):
            job.run_to_end()
    else:
        job.run_to_end()
        assert job.rows == ["1", "2"]


def test_a_file_of_the_same_size_that_was_written_again_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1\n")
    os.utime(path, ns=(1, 1))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path)).build()
    job = SourceJob(source, 1, Types.STRING())
    os.utime(path, ns=(2, 2))
    with pytest.raises(FileChangedError, match="was written again"):
        job.run_to_end()


@given(st.integers(0, 2000), st.integers(1, 300))
def test_the_ranges_of_a_file_tile_it(size: int, split_size: int) -> None:
    whole = FileSplit("/", "/a", 0, size, size, 0)
    parts = splits_of_file(whole, split_size)
    assert parts[0].offset == 0
    assert parts[-1].end == size
    assert all(one.end == other.offset for one, other in itertools.pairwise(parts))
    assert len({one.split_id for one in parts}) == len(parts)
    assert all(one.length <= split_size * 3 // 2 for one in parts)


def test_only_charsets_whose_lines_are_bytes_let_files_be_cut() -> None:
    cut = ["utf-8", "latin-1", "ascii", "cp1252", "iso-8859-15", "koi8-r"]
    whole = ["utf-16", "utf-32-le", "utf-8-sig", "utf-7", "shift_jis"]
    assert all(StreamFormat.text_line_format(name).is_splittable for name in cut)
    assert not any(StreamFormat.text_line_format(name).is_splittable for name in whole)
