"""Fault rules as texts: what they mean, that printing and reading agree, and what is said of texts that are none."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.wire.framing import declared_frames
from headrace.testing.fault_proxy.proxy import Address
from headrace.testing.fault_proxy.rules import (
    ACTIONS,
    FRAME_NAMES,
    Coalesce,
    Corrupt,
    Cut,
    Delay,
    Direction,
    Drop,
    Duplicate,
    FaultRule,
    FaultRuleError,
    Fragment,
    FrameSelector,
    Reorder,
    Stall,
    Throttle,
    Unit,
    parse_rule,
)

MS = 1_000_000


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "drop Data channel=1 sequence=5",
            FaultRule(Drop(), FrameSelector("Data", channel=1, sequence=(5, 5))),
        ),
        ("delay AddCredit by=100ms", FaultRule(Delay(100 * MS), FrameSelector("AddCredit"))),
        ("delay 1.5s jitter=20us", FaultRule(Delay(1500 * MS, 20_000))),
        ("throttle 1MiB/s", FaultRule(Throttle(1 << 20))),
        (
            "throttle rate=10KiB direction=backward",
            FaultRule(Throttle(10 << 10), FrameSelector(direction=Direction.BACKWARD)),
        ),
        ("duplicate", FaultRule(Duplicate(1))),
        ("duplicate 3 Event", FaultRule(Duplicate(3), FrameSelector("Event"))),
        ("reorder by=2 within=1s", FaultRule(Reorder(2, 1000 * MS))),
        ("corrupt at=0 offset=900", FaultRule(Corrupt(0), FrameSelector(offset=900))),
        ("cut nth=4", FaultRule(Cut(0), FrameSelector(nth=4))),
        ("stall", FaultRule(Stall(None))),
        ("stall for=60s Data", FaultRule(Stall(60_000 * MS), FrameSelector("Data"))),
        ("fragment", FaultRule(Fragment(1))),
        ("coalesce 64KiB within=5ms", FaultRule(Coalesce(64 << 10, 5 * MS))),
        (
            "drop sequence=5..9 every=2 count=3 probability=0.25",
            FaultRule(Drop(), FrameSelector(sequence=(5, 9), every=2, count=3, probability=0.25)),
        ),
    ],
)
def test_a_text_means_one_rule(text: str, rule: FaultRule) -> None:
    assert parse_rule(text) == rule
    assert parse_rule(str(rule)) == rule


def test_a_rule_prints_what_is_not_default() -> None:
    assert str(parse_rule("delay 100ms AddCredit jitter=0ms")) == "delay AddCredit by=100ms"
    assert str(parse_rule("throttle 1048576B/s")) == "throttle rate=1MiB/s"
    assert str(parse_rule("drop")) == "drop"


def actions() -> st.SearchStrategy[Any]:
    def values(action: type[Any]) -> st.SearchStrategy[Any]:
        fields = {}
        for key in dataclasses.fields(action):
            unit, counted_from = key.metadata["unit"], key.metadata["least"]
            least = counted_from if unit in (Unit.COUNT, Unit.DURATION) else 1
            fields[key.name] = st.integers(least, 1 << 44)
            if key.default is None:
                fields[key.name] = st.none() | fields[key.name]
        return st.builds(action, **fields)

    return st.sampled_from(sorted(ACTIONS)).flatmap(lambda word: values(ACTIONS[word]))


COUNT = st.none() | st.integers(1, 1 << 30)
SELECTORS = st.builds(
    FrameSelector,
    st.none() | st.sampled_from(FRAME_NAMES),
    st.none() | st.sampled_from(Direction),
    st.none() | st.integers(0, 1 << 32),
    st.none() | st.tuples(st.integers(0, 99), st.integers(100, 1 << 60)),
    st.none() | st.integers(0, 1 << 40),
    COUNT,
    COUNT,
    st.floats(0, 1),
    COUNT,
)


@given(st.builds(FaultRule, actions(), SELECTORS))
def test_every_rule_is_what_its_text_says(rule: FaultRule) -> None:
    assert parse_rule(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "must begin with one of drop, duplicate"),
        ("lose Data", "must begin with one of drop, duplicate"),
        ("drop Date", "'Date' is not a frame; the frames are Close"),
        ("drop Hello", "'Hello' is not a frame"),
        ("drop colour=red", "'colour' is not one of its keys: direction, channel"),
        ("delay", "delay needs by=, a duration such as 100ms"),
        ("delay 100", "'100' is not a duration such as 100ms; units are ns, us, ms"),
        ("delay -1s", "'-1s' is not a frame"),
        ("throttle 1MiB/min", "'1MiB/min' is not a size per second"),
        ("throttle 0B/s", "'0B' is not a size per second"),
        ("drop sequence=9..5", "'9..5' is not a range"),
        ("drop sequence=x", "'x' is not a whole number"),
        ("drop nth=0", "'0' is not a whole number of at least 1"),
        ("reorder Data by=0", "'0' is not a whole number of at least 1"),
        ("reorder 0 Data", "'0' is not a whole number of at least 1"),
        ("duplicate copies=0", "'0' is not a whole number of at least 1"),
        ("drop probability=2", "'2' is not a probability"),
        ("drop probability=nan", "'nan' is not a probability"),
        ("drop direction=up", "'up' is neither forward nor backward"),
        ("drop Data Event", "a key is given twice"),
        ("delay 1s by=2s", "a key is given twice"),
    ],
)
def test_a_text_that_is_no_rule_is_refused_with_what_would_be_one(text: str, what: str) -> None:
    with pytest.raises(FaultRuleError) as raised:
        parse_rule(text)
    assert what in str(raised.value)


@given(
    st.text(max_size=40) | st.builds("{} {}".format, st.sampled_from(sorted(ACTIONS)), st.text())
)
def test_no_text_does_worse_than_being_refused(text: str) -> None:
    try:
        parse_rule(text)
    except FaultRuleError as error:
        assert "is not a fault rule" in str(error)


def test_every_frame_but_the_opening_can_be_named() -> None:
    assert {frame.__name__ for frame in declared_frames()} - set(FRAME_NAMES) == {"Hello", "Proof"}
    assert len(set(FRAME_NAMES)) == len(FRAME_NAMES)
    assert "PushData" in FRAME_NAMES


@pytest.mark.parametrize("text", ["127.0.0.1:7000", "[::1]:80", "some-host:0", "unix:a/b.sock"])
def test_an_address_is_printed_as_it_was_read(text: str) -> None:
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize("text", ["", "host", "host:", "host:99999", ":80", "unix:", "host:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither host:port nor unix:path"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("listener", "target", "is_same"),
    [
        ("127.0.0.1:7000", "127.0.0.1:7000", True),
        ("127.0.0.1:7000", "127.0.0.1:7001", False),
        ("127.0.0.1:7000", "127.0.0.2:7000", False),
        ("localhost:7000", "127.0.0.1:7000", True),
        ("0.0.0.0:7000", "127.0.0.1:7000", True),
        ("0.0.0.0:7000", "192.0.2.1:7000", False),
        ("[::1]:7000", "[0:0::1]:7000", True),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("unix:a/../d.sock", "unix:./d.sock", True),
        ("unix:d.sock", "unix:moved.sock", False),
        ("unix:d.sock", "127.0.0.1:7000", False),
    ],
)
def test_a_listener_knows_the_addresses_that_lead_to_it(
    listener: str, target: str, is_same: bool
) -> None:
    assert Address.parse(listener).is_same_place(Address.parse(target)) == is_same
