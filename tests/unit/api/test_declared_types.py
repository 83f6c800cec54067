"""What docs/sources_and_sinks.md says of values and their types."""

import pytest

from headrace.core.errors import RecordTypeError
from headrace.core.types.type_info import TypeInformation, Types
from headrace.core.types.value_checks import ValueCheck
from headrace.functions.collection_source import CollectionSource
from tests.unit.connectors.replays import SourceJob


@pytest.mark.parametrize(
    ("declared", "given", "arrives"),
    [
        (Types.SHORT(), 70_000, 4_464),
        (Types.INT(), 3_000_000_000 * 2, 1_705_032_704),
        (Types.LONG(), 2**63, -(2**63)),
        (Types.BIG_INT(), 2**63, 2**63),
        (None, 2**63, 2**63),
    ],
)
def test_integers_wrap_round_as_the_page_of_sources_says(
    declared: TypeInformation | None, given: int, arrives: int
) -> None:
    source = CollectionSource([given], declared)
    assert source.produced_type is not None
    job = SourceJob(source, 1, source.produced_type)
    job.run_to_end()
    assert job.rows == [arrives]


def test_state_refuses_an_integer_that_would_wrap() -> None:
    with pytest.raises(RecordTypeError, match="70000"):
        ValueCheck.of(Types.SHORT()).keep(70_000)
