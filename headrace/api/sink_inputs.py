"""What a sink is given: the stream as the sink itself prepares it, if the sink can take such records."""

from headrace.api.call_site import call_site
from headrace.api.data_stream import DataStream
from headrace.api.transformations import operator_behind
from headrace.core.errors import ProgramError
from headrace.functions.sink import Sink, SupportsPreprocessing


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
