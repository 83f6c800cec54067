"""DiscardingSink: takes everything and keeps nothing."""

from headrace.core.types.type_info import Types
from headrace.functions.sink import DiscardingSink
from headrace.functions.specs.operator_specs import SinkSpec
from headrace.testing.operator_harness import OperatorHarness, Rows


def test_a_discarding_sink_takes_every_record_and_prepares_nothing() -> None:
    harness = OperatorHarness(SinkSpec(DiscardingSink()), input_types=(Types.LONG(),))
    harness.perform(Rows([1, 2, 3]))
    assert harness.snapshot().committables == ()
    harness.finish()
    assert harness.output.rows == []
