"""United streams: `stream.union(others)` gives the records of all of them, in no order between streams.

Streams that meet in one operator must belong to one environment: a job is made of what one environment knows.

Also prepares a sink's input: applies the sink's own transformation of the stream, and checks that it can take the
records.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.api.function_checks import call_site
from headrace.api.streams.data_stream import DataStream
from headrace.api.transformations import operator_behind, united, upstreams_of
from headrace.core.errors import ProgramError
from headrace.functions.sink import Sink, SupportsPreprocessing

if TYPE_CHECKING:
    from headrace.api.streams.data_stream import DataStream


def require_one_environment(method: str, *streams: "DataStream") -> None:
    """Raise ProgramError, saying where both streams were made, where `method` is to bring strangers together.

    Operators are numbered by their environment, so those of another one would be taken for its own.
    """
    first, *others = streams
    for other in others:
        if other.get_execution_environment() is not first.get_execution_environment():
            raise ProgramError(
                f"{method} needs streams of one environment, but {_made_at(first)} and {_made_at(other)} belong to "
                "two: make both streams from one get_execution_environment()"
            )


def _made_at(stream: "DataStream") -> str:
    operator = next(upstreams_of(stream.transformation)).operator
    return f"the stream of '{operator.name}' ({operator.location})"


def unite(first: DataStream, others: Sequence[DataStream]) -> DataStream:
    """Return the stream of all records; ProgramError unless the streams have one type and one environment."""
    for other in others:
        if not isinstance(other, DataStream):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"union needs DataStreams, not {other!r}")
        if other.get_type() != first.get_type():
            raise ProgramError(
                f"union needs streams of one type, but these are of {first.get_type()} and {other.get_type()}"
            )
    require_one_environment("union", first, *others)
    inputs = [one.without_keys() for one in (first, *others)]
    if len(inputs) == 1:
        return inputs[0]
    union = united([one.transformation for one in inputs])
    return DataStream(first.get_execution_environment(), union)


def sink_input(stream: DataStream, sink: Sink) -> DataStream:
    """Return what the sink writes; ProgramError, with the stream's operator, where it cannot write such records."""
    transformer = sink.get_transformer() if isinstance(sink, SupportsPreprocessing) else None
    written = stream if transformer is None else transformer.apply(stream)
    if not isinstance(written, DataStream):
        raise TypeError(f"{transformer!r} must give a DataStream to {sink!r}, not {written!r}")
    written = written.without_keys()
    try:
        sink.check_input(written.get_type())
    except ProgramError as error:
        made_by = operator_behind(written.transformation)
        source = "a union" if made_by is None else f"operator '{made_by.name}'"
        raise ProgramError(f"{error} (the stream of {source}, {call_site()})") from None
    return written
