"""DataStreamSink: the end of a pipeline."""

from headrace.api.stream_properties import OperatorProperties
from headrace.api.transformations import OperatorTransformation


class DataStreamSink(OperatorProperties):
    """A sink operator that can still be named and moved."""

    def __init__(self, operator: OperatorTransformation) -> None:
        self._sink_operator = operator

    def _operator(self) -> OperatorTransformation:
        return self._sink_operator

    def __repr__(self) -> str:
        return f"DataStreamSink('{self._sink_operator.name}')"
