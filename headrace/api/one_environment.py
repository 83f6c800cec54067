"""Streams that meet in one operator must belong to one environment: a job is made of what one environment knows."""

from typing import TYPE_CHECKING

from headrace.api.transformations import upstreams_of
from headrace.core.errors import ProgramError

if TYPE_CHECKING:
    from headrace.api.data_stream import DataStream


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
