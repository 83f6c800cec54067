"""A state that holds what cannot be stored under its type: the job ends, with operator and state named."""

from typing import Any

import pytest

from headrace import StreamExecutionEnvironment, Types, WatermarkStrategy
from headrace.common import Configuration
from headrace.core.errors import JobExecutionError
from headrace.datastream import KeyedProcessFunction
from headrace.datastream.state import ValueStateDescriptor
from headrace.functions.sink import DiscardingSink
from tests.integration.programs.gated import GATES, Gate, GatedSource

pytestmark = pytest.mark.integration

OPTIONS = {
    "execution.checkpointing.interval": "50 ms",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000000",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "1 ms",
}


class Careless(KeyedProcessFunction):
    """Changes a list behind the back of the state that holds it."""

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("seen", Types.LIST(Types.LONG()))
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        if self.seen.value() is None:
            self.seen.update([value])
        self.seen.value().append("text")
        yield value


def test_state_that_cannot_be_stored_ends_the_job_however_often_it_may_restart(
    env: StreamExecutionEnvironment,
) -> None:
    GATES["unstorable"] = Gate(10)
    configuration = Configuration()
    for key, value in OPTIONS.items():
        configuration.set_string(key, value)
    env.configure(configuration)
    numbers = env.from_source(
        GatedSource("unstorable", None), WatermarkStrategy.no_watermarks(), "numbers", Types.INT()
    )
    keyed = numbers.key_by(lambda number: number, key_type=Types.INT())
    keyed.process(Careless(), output_type=Types.INT()).name("Careless").sink_to(DiscardingSink())
    client = env.execute_async("unstorable")
    with pytest.raises(JobExecutionError) as ended:
        client.get_job_execution_result().result(60)
    told = str(ended.value).partition("\n")[0]
    assert told.startswith("operator 'Careless' keeps state that cannot be stored: record [")
    assert "(in state 'seen') does not fit its declared type ListTypeInfo<Long>" in told
