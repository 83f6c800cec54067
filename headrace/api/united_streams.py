"""United streams: `stream.union(others)` gives the records of all of them, in no order between streams."""

from collections.abc import Sequence

from headrace.api.data_stream import DataStream
from headrace.api.one_environment import require_one_environment
from headrace.api.transformations import united
from headrace.core.errors import ProgramError


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
