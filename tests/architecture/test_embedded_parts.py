"""Pages with parts that the code makes: what the marks mean, and that the prose around the trace fits the trace."""

import re

import pytest

from headrace.network.trace.exchange import TraceSettings, trace_exchange
from tests.architecture.floor_plan import ROOT
from tools.pages.embedded import embed

PAGE = "before\n<!-- made from the code: x -->\nold\n<!-- end: x -->\nafter\n"
NEW = "before\n<!-- made from the code: x -->\n\nnew\n\n<!-- end: x -->\nafter\n"


def test_a_part_is_replaced_and_the_rest_left_alone() -> None:
    assert embed(PAGE, {"x": lambda: "new\n"}) == NEW
    assert embed(NEW, {"x": lambda: "new"}) == NEW


@pytest.mark.parametrize(
    "page",
    [
        "no marks at all\n",
        PAGE.replace("end: x", "end: y"),
        PAGE.replace(": x", ": y"),
        PAGE + PAGE,
        PAGE + "<!-- made from the code: z -->\nwithout an end\n",
    ],
)
def test_marks_and_parts_must_fit_each_other(page: str) -> None:
    with pytest.raises(ValueError, match="part"):
        embed(page, {"x": lambda: "new"})


def test_the_steps_that_the_chapter_explains_are_those_of_its_trace() -> None:
    chapter = (ROOT / "docs" / "how_a_record_travels.md").read_text(encoding="utf-8")
    explained = [int(number) for number in re.findall(r"^- \*\*Step (\d+)\.\*\*", chapter, re.M)]
    steps = trace_exchange(TraceSettings(is_consumer_slow=True))
    assert [steps[number - 1].text for number in explained] == [
        "B receives Proof",
        "A receives PartitionRequest of channel 0, credit 2",
        "B receives Data #0 of channel 0, backlog 4",
        "B receives Data #1 of channel 0, backlog 3",
        "A receives AddCredit 5 for channel 0",
        "B's task takes the batch with row 0",
        "B's task takes the batch with row 4",
    ]
