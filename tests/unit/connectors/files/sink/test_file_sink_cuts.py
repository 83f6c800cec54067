"""A file sink writes the same rows in the same order, however its batches are cut and its files roll."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.files.sink.buckets import RollingPolicy
from headrace.functions.sink import FINAL_CHECKPOINT
from tests.unit.connectors.connector_contexts import ConnectorContext
from tests.unit.connectors.files.sink.file_sinks import PAIR, batch, sink


def written(path: Path, cuts: list[int], part_size_bytes: int) -> list[str]:
    """The contents of the parts in their order, of rows numbered through batches of `cuts` rows each."""
    policy = RollingPolicy.default_rolling_policy(part_size_bytes, 10**9, 10**9)
    writer = sink(path, policy).create_writer(ConnectorContext(PAIR))
    number = 0
    for count in cuts:
        writer.write_batch(batch(*((str(n), n) for n in range(number, number + count))))
        number += count
    writer.flush(end_of_input=True)
    writer.prepare_commit(FINAL_CHECKPOINT)
    writer.close()
    files = [one for one in path.rglob("out-*") if one.is_file()]
    files.sort(key=lambda one: int(re.findall(r"-(\d+)\.", one.name)[0]))
    return [one.read_text(encoding="utf-8") for one in files]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 60))
def test_rows_are_the_same_in_the_same_order_and_no_part_is_longer_than_its_bound_and_a_batch(
    cuts: list[int], part_size_bytes: int
) -> None:
    with TemporaryDirectory() as whole, TemporaryDirectory() as cut:
        expected = "".join(written(Path(whole), [sum(cuts)], part_size_bytes))
        parts = written(Path(cut), cuts, part_size_bytes)
    assert "".join(parts) == expected == "".join(f"({n},{n})\n" for n in range(sum(cuts)))
    assert max(map(len, parts)) <= part_size_bytes + max(cuts) * len("(99,99)\n")
