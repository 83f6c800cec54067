"""Frames of each kind, and their contents."""

from hypothesis import strategies as st

from headrace.core.elements import LatencyMarker, PlacedMarker, Watermark, WatermarkStatus
from headrace.core.ids import OperatorId
from headrace.network.wire.framing import Frame

OFFSETS = st.integers(0, 2**32 - 1)


MARKERS = st.lists(
    st.builds(
        PlacedMarker,
        OFFSETS,
        st.builds(Watermark, st.integers(-(2**63), 2**63 - 1))
        | st.builds(WatermarkStatus, st.booleans())
        | st.builds(
            LatencyMarker,
            st.integers(-(2**63), 2**63 - 1),
            st.builds(OperatorId, st.binary(min_size=16, max_size=16)),
            OFFSETS,
        ),
    ),
    max_size=20,
).map(tuple)


def content(frame: Frame) -> tuple[object, ...]:
    """A frame's class and values, with its body as bytes."""
    values = [bytes(value) if name == "body" else value for name, value in frame_fields(frame)]
    return (type(frame), *values)


def frame_fields(frame: Frame) -> list[tuple[str, object]]:
    return [(name, getattr(frame, name)) for name in frame.__struct_fields__]
