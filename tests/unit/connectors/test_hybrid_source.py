"""A HybridSource: one source after the other, each record once, whatever fails in between."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.datagen import source as datagen
from headrace.connectors.datagen.source import NumberSequenceSource
from headrace.connectors.files.formats import line_blocks
from headrace.connectors.files.formats.text_lines import StreamFormat
from headrace.connectors.files.source.file_source import FileSource
from headrace.connectors.hybrid_source import HybridSource
from headrace.connectors.socket.source import SocketSource
from headrace.core.errors import ProgramError
from headrace.core.types.type_info import Types
from headrace.functions.hybrid_enumerator import (
    HybridEvent,
    ReaderBegins,
    SourceFinished,
    SwitchSource,
    hybrid_event,
)
from headrace.functions.source import ConnectorEvent, Source, event_bytes, event_to_coordinator
from headrace.functions.sources import collection_source
from headrace.functions.sources.collection_source import CollectionSource
from tests.unit.connectors.connector_contexts import ConnectorContext, Rows
from tests.unit.connectors.replays import Life, SourceJob, lives, rows_of


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagen, "BATCH_ROWS", 3)
    monkeypatch.setattr(collection_source, "BATCH_ROWS_MAX", 3)
    monkeypatch.setattr(line_blocks, "CHUNK_SIZE_BYTES", 7)


def files_of(folder: Path, name: str, count: int) -> Source:
    for number in range(3):
        lines = [f"{name} {line}\n" for line in range(number, count, 3)]
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"{number}.txt").write_text("".join(lines))
    text = StreamFormat.text_line_format()
    return FileSource.for_record_stream_format(text, str(folder / name)).build()


def texts_of(name: str, count: int) -> Source:
    return CollectionSource([f"{name} {line}" for line in range(count)], Types.STRING())


KINDS = ("files files", "files texts", "texts files", "texts texts", "files texts files")


@pytest.mark.parametrize("kinds", KINDS)
def test_a_job_that_fails_and_comes_back_reads_each_record_of_each_source_once(
    kinds: str, tmp_path: Path
) -> None:
    @given(lives(), st.integers(0, 20))
    def check(attempts: list[Life], count: int) -> None:
        source = hybrid_of(kinds, tmp_path, count)
        rows = rows_of(source, attempts, Types.STRING())
        names = "abc"[: len(kinds.split())]
        assert sorted(rows) == sorted(f"{name} {line}" for name in names for line in range(count))

    check()


def hybrid_of(kinds: str, folder: Path, count: int) -> HybridSource:
    sources = [
        files_of(folder, name, count) if kind == "files" else texts_of(name, count)
        for name, kind in zip("abc", kinds.split(), strict=False)
    ]
    builder = HybridSource.builder(sources[0])
    for source in sources[1:]:
        builder.add_source(source)
    return builder.build()


@pytest.mark.parametrize("kinds", KINDS)
def test_no_reader_begins_a_source_before_all_have_read_the_one_before(
    kinds: str, tmp_path: Path
) -> None:
    job = SourceJob(hybrid_of(kinds, tmp_path, 30), 3, Types.STRING())
    seen: list[str] = []
    read = 0
    while not all(job.has_ended):
        job.poll()
        rows: list[Any] = job.rows
        if len(rows) > read:
            latest = {row[0] for output in job.outputs for row in output.values} - set(seen)
            seen += sorted(latest)
            read = len(rows)
            if len(seen) > 1:
                earlier = sum(row.startswith(seen[-2]) for row in rows)
                assert earlier == 30
    assert seen == list("abc")[: len(kinds.split())]
    # What a source left of its splits does not hold the next one's watermark back.
    assert all(len({one.split("/")[0] for one in output.splits}) <= 1 for output in job.outputs)


def test_a_source_that_ends_before_the_answer_to_its_start_is_read_once_and_then_the_next() -> None:
    sent: list[bytes] = []
    context: Any = ConnectorContext(Types.LONG())
    context.send_event = sent.append
    sources = [NumberSequenceSource(1, 3), NumberSequenceSource(10, 12)]
    reader = HybridSource.builder(sources[0]).add_source(sources[1]).build().create_reader(context)
    output = Rows()

    def poll_all() -> None:
        for _ in range(5):
            reader.poll_next(output)

    reader.start()
    poll_all()
    # Who has not been registered yet is not counted: its end is told behind the answer.
    assert said(sent) == [ReaderBegins(0)]
    for _ in range(2):
        reader.handle_event(switch_to(0))
        poll_all()
        assert said(sent) == [ReaderBegins(0), SourceFinished(0)]
    for _ in range(2):
        reader.handle_event(switch_to(1))
        reader.handle_event(switch_to(0))
        poll_all()
    assert output.values == [1, 2, 3, 10, 11, 12]
    assert said(sent) == [ReaderBegins(0), SourceFinished(0)]


def switch_to(source_index: int) -> bytes:
    return event_bytes(ConnectorEvent(msgspec.msgpack.encode(SwitchSource(source_index))))


def said(sent: list[bytes]) -> list[HybridEvent]:
    """What the reader said to its enumerator, behind its registration."""
    events = [event_to_coordinator(payload) for payload in sent]
    return [hybrid_event(one.payload) for one in events if isinstance(one, ConnectorEvent)]


def test_sources_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    builder = HybridSource.builder(NumberSequenceSource(1, 2))
    with pytest.raises(ProgramError, match="must have the same type, not Long and String"):
        builder.add_source(files_of(tmp_path, "a", 3))
    endless = HybridSource.builder(SocketSource("localhost", 1, "\n", 0))
    with pytest.raises(ProgramError, match="only the last source of a HybridSource may be endless"):
        endless.add_source(files_of(tmp_path, "a", 3))
    wrong: Any = "a source"
    with pytest.raises(TypeError, match="is made of Sources, not of 'a source'"):
        HybridSource.builder(wrong)
