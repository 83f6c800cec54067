"""The decisions of the fault proxy: which frames meet which fate, when; the same seed, the same fate."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import ProtocolError
from headrace.network.wire.frame_splitter import FrameSplitter
from headrace.network.wire.frames import (
    AddCredit,
    Backlog,
    Data,
    Hello,
    Proof,
)
from headrace.network.wire.framing import Frame, encode
from headrace.testing.fault_proxy.injector import (
    CutConnection,
    Deliver,
    EndStream,
    FaultApplied,
    FaultInjector,
    ProxyAction,
)
from headrace.testing.fault_proxy.proxy import binary_size_text, status_line
from headrace.testing.fault_proxy.rules import ACTIONS, Direction, parse_rule

BACK, FORTH = Direction.BACKWARD, Direction.FORWARD
MS = 1_000_000


def raw(frame: Frame) -> bytes:
    return b"".join(bytes(part) for part in encode(frame))


def data(sequence: int, channel: int = 0, size: int = 10) -> bytes:
    return raw(Data(channel, sequence, 1, 0, 1, 7, (), b"x" * size))


def injector(*rules: str, seed: str = "0") -> FaultInjector:
    return FaultInjector([parse_rule(rule) for rule in rules], seed)


def delivered(actions: Sequence[ProxyAction], direction: Direction = BACK) -> bytes:
    return b"".join(
        action.data
        for action in actions
        if isinstance(action, Deliver) and action.direction is direction
    )


def sequences(stream: bytes) -> list[int]:
    return [cut.frame.sequence for cut in FrameSplitter("it").cut(stream)]  # type: ignore[attr-defined]


def run(faults: FaultInjector, frames: Sequence[bytes], now_ns: int = 0) -> list[ProxyAction]:
    """Send frames backward at one moment; return everything that happens until nothing more does."""
    actions: list[ProxyAction] = []
    for frame in frames:
        actions += faults.received(BACK, frame, now_ns)
    actions += faults.ended(BACK, now_ns)
    while (due_ns := faults.next_due_ns) is not None:
        actions += faults.time_passed(due_ns)
    return actions


FIVE = [data(number) for number in range(5)]


def test_without_a_rule_everything_passes_at_once() -> None:
    faults = injector()
    assert delivered(faults.received(BACK, b"".join(FIVE), 3)) == b"".join(FIVE)
    assert faults.ended(BACK, 4) == [EndStream(BACK)]
    assert faults.held_bytes == 0 and faults.next_due_ns is None


def test_the_opening_is_never_touched() -> None:
    opening = [raw(Hello(1, 1, 0, b"c" * 32, b"tm-1")), raw(Proof(b"p" * 32))]
    for word, text in [("delay", "delay 1s"), ("throttle", "throttle 1B/s")] + [
        (word, word) for word in ACTIONS if word not in ("delay", "throttle")
    ]:
        faults = injector(text)
        assert faults.received(BACK, opening[0], 0) == [Deliver(BACK, opening[0])], word
        assert faults.received(FORTH, b"".join(opening), 0) == [
            Deliver(FORTH, opening[0]),
            Deliver(FORTH, opening[1]),
        ]


@pytest.mark.parametrize(
    ("rule", "arrives"),
    [
        ("drop sequence=2", [0, 1, 3, 4]),
        ("drop sequence=1..3", [0, 4]),
        ("drop nth=1", [1, 2, 3, 4]),
        ("drop every=2", [0, 2, 4]),
        ("drop count=2", [2, 3, 4]),
        ("drop every=2 count=1", [0, 2, 3, 4]),
        ("drop probability=0", [0, 1, 2, 3, 4]),
        ("drop probability=1", []),
        ("drop Event", [0, 1, 2, 3, 4]),
        ("drop channel=1", [0, 1, 2, 3, 4]),
        ("drop direction=forward", [0, 1, 2, 3, 4]),
        ("drop offset=70", [0, 2, 3, 4]),
        ("duplicate sequence=1", [0, 1, 1, 2, 3, 4]),
        ("duplicate 2 sequence=4", [0, 1, 2, 3, 4, 4, 4]),
        ("reorder sequence=0", [1, 0, 2, 3, 4]),
        ("reorder by=3 sequence=1", [0, 2, 3, 4, 1]),
        ("reorder sequence=4", [0, 1, 2, 3, 4]),
        ("reorder by=9 sequence=0..1", [2, 3, 4, 0, 1]),
        ("delay by=1s sequence=2", [0, 1, 2, 3, 4]),
        ("coalesce 1MiB", [0, 1, 2, 3, 4]),
        ("fragment 1B", [0, 1, 2, 3, 4]),
        ("throttle 1KiB/s", [0, 1, 2, 3, 4]),
    ],
)
def test_the_frames_that_are_selected_meet_their_fate(rule: str, arrives: list[int]) -> None:
    assert len(FIVE[0]) == 58
    actions = run(injector(rule), FIVE)
    assert sequences(delivered(actions)) == arrives
    assert actions[-1] == EndStream(BACK)


def test_what_was_done_is_told_and_counted() -> None:
    faults = injector("drop Data sequence=1..2", "duplicate AddCredit")
    actions = run(faults, FIVE)
    told = [action for action in actions if isinstance(action, FaultApplied)]
    assert [fault.frame_text for fault in told] == [
        "Data channel=0 sequence=1",
        "Data channel=0 sequence=2",
    ]
    assert faults.fault_counts == {"drop": 2}
    assert faults.lanes[BACK].frame_counts == {"Data": 5}
    assert faults.lanes[BACK].byte_count == 5 * 58


def test_a_delayed_frame_holds_up_those_behind_it() -> None:
    faults = injector("delay 100ms sequence=1")
    actions = faults.received(BACK, b"".join(FIVE), 0)
    assert sequences(delivered(actions)) == [0]
    assert faults.next_due_ns == 100 * MS and faults.held_bytes == 4 * 58
    assert delivered(faults.time_passed(100 * MS - 1)) == b""
    assert sequences(delivered(faults.time_passed(100 * MS))) == [1, 2, 3, 4]


def test_delays_do_not_add_up() -> None:
    faults = injector("delay 100ms")
    faults.received(BACK, FIVE[0], 0)
    faults.received(BACK, FIVE[1], 30 * MS)
    assert sequences(delivered(faults.time_passed(100 * MS))) == [0]
    assert faults.next_due_ns == 130 * MS


def test_the_other_direction_is_not_held_up() -> None:
    faults = injector("stall direction=backward")
    assert delivered(faults.received(BACK, FIVE[0], 0)) == b""
    credit = raw(AddCredit(0, 1))
    assert delivered(faults.received(FORTH, credit, 0), FORTH) == credit
    assert faults.next_due_ns is None


def test_a_stall_for_some_time_ends() -> None:
    faults = injector("stall for=2s sequence=1")
    assert sequences(delivered(faults.received(BACK, b"".join(FIVE), 0))) == [0]
    assert sequences(delivered(faults.time_passed(2000 * MS))) == [1, 2, 3, 4]


def test_a_stall_without_end_lets_not_even_the_end_pass() -> None:
    faults = injector("stall nth=2")
    actions = run(faults, FIVE)
    assert sequences(delivered(actions)) == [0] and EndStream(BACK) not in actions


def test_a_reordered_frame_that_nobody_passes_comes_after_a_while() -> None:
    faults = injector("reorder sequence=0 within=50ms")
    assert delivered(faults.received(BACK, FIVE[0], 0)) == b""
    assert faults.next_due_ns == 50 * MS
    assert delivered(faults.time_passed(50 * MS)) == FIVE[0]


@pytest.mark.parametrize("at", [0, 7, 57])
def test_a_cut_lets_a_part_of_the_frame_pass_and_nothing_behind(at: int) -> None:
    faults = injector(f"cut {at} sequence=1")
    actions = faults.received(BACK, b"".join(FIVE), 0)
    assert delivered(actions) == FIVE[0] + FIVE[1][:at]
    assert actions[-1] == CutConnection() and faults.is_cut
    assert faults.received(FORTH, raw(AddCredit(0, 1)), 0) == []
    assert faults.next_due_ns is None


def test_a_cut_at_an_offset_is_at_that_byte_of_the_stream() -> None:
    assert delivered(run(injector("cut offset=100"), FIVE)) == b"".join(FIVE)[:100]


@pytest.mark.parametrize("rule", ["corrupt sequence=2", "corrupt at=0 sequence=2", "corrupt offset=130"])  # fmt: skip
def test_corruption_turns_over_one_bit(rule: str) -> None:
    found, whole = delivered(run(injector(rule), FIVE)), b"".join(FIVE)
    changed = [index for index in range(len(whole)) if found[index] != whole[index]]
    assert len(found) == len(whole) and len(changed) == 1
    assert 2 * 58 <= changed[0] < 3 * 58
    assert (found[changed[0]] ^ whole[changed[0]]).bit_count() == 1
    if "at" in rule:
        assert changed == [2 * 58]
    if "offset" in rule:
        assert changed == [130]


def test_a_throttle_keeps_its_rate() -> None:
    faults = injector("throttle 1000B/s")
    faults.received(BACK, data(0, size=1952), 0)
    assert faults.held_bytes == 2000
    for second in (1, 2):
        passed = delivered(faults.time_passed(second * 1000 * MS))
        assert 990 <= len(passed) <= 1010
    assert faults.held_bytes == 0


def test_an_idle_throttle_saves_nothing_up() -> None:
    faults = injector("throttle 1000B/s")
    faults.received(BACK, data(0, size=52), 10_000 * MS)
    assert faults.held_bytes == 100 and faults.next_due_ns == 10_010 * MS


def test_fragments_are_asked_of_the_shell_and_coalesced_frames_come_as_one() -> None:
    assert run(injector("fragment 3B"), FIVE)[1] == Deliver(BACK, FIVE[0], 3)
    writes = [action for action in run(injector("coalesce 120B"), FIVE) if isinstance(action, Deliver)]  # fmt: skip
    assert [len(write.data) for write in writes] == [3 * 58, 2 * 58]


def test_coalescing_waits_no_longer_than_it_says() -> None:
    faults = injector("coalesce 1MiB within=10ms")
    faults.received(BACK, FIVE[0], 0)
    faults.received(BACK, FIVE[1], 9 * MS)
    assert faults.next_due_ns == 10 * MS
    assert faults.time_passed(10 * MS) == [Deliver(BACK, FIVE[0] + FIVE[1])]


def test_an_unfinished_frame_passes_with_the_end() -> None:
    faults = injector("drop")
    faults.received(BACK, FIVE[0][:20], 0)
    assert faults.ended(BACK, 0) == [Deliver(BACK, FIVE[0][:20]), EndStream(BACK)]


def test_what_is_no_frame_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="the backward side"):
        injector().received(BACK, b"GET / HTTP/1.1\r\n", 0)


def test_the_live_line_says_what_passed_and_what_was_done() -> None:
    faults = injector("drop sequence=1..2", "stall sequence=4")
    faults.received(BACK, b"".join(FIVE), 0)
    assert status_line(12.3, 1, [faults], with_frames=False) == (
        "   12 s | 1 open of 1 | → 0 frames 0 B | ← 5 frames 290 B | drop 2, stall 1 | holds 58 B"
    )
    assert "← 5 frames 290 B (Data 5)" in status_line(0, 1, [faults], with_frames=True)
    assert "no fault yet" in status_line(0, 0, [], with_frames=True)
    assert [binary_size_text(size) for size in (999, 1000, 5 << 30)] == [
        "999 B",
        "1.0 KiB",
        "5.0 GiB",
    ]


# --- properties -----------------------------------------------------------------------------------

RULES = st.lists(
    st.sampled_from(
        [
            "drop probability=0.3",
            "duplicate probability=0.3",
            "delay 5ms jitter=20ms probability=0.5",
            "reorder by=2 probability=0.3",
            "corrupt probability=0.2",
            "throttle 2KiB/s AddCredit",
            "fragment 7B probability=0.5",
            "coalesce 100B probability=0.5",
            "stall for=30ms probability=0.1",
            "cut 5 probability=0.02",
        ]
    ),
    max_size=4,
)
FRAMES = st.lists(
    st.tuples(
        st.sampled_from(Direction),
        st.integers(0, 50),
        st.sampled_from([raw(AddCredit(1, 2)), raw(Backlog(0, 3)), *FIVE]),
    ),
    max_size=25,
)
Timed = list[tuple[int, ProxyAction]]


Sent = list[tuple[Direction, int, bytes]]


def fate(rules: list[str], seed: str, frames: Sent, cut_at: list[int]) -> Timed:
    """Feed frames, each some milliseconds after the one before and in pieces; return all actions with their times."""
    faults, now_ns, happened = injector(*rules, seed=seed), 0, Timed()

    def advance(to_ns: float) -> None:
        while (due_ns := faults.next_due_ns) is not None and due_ns <= to_ns:
            happened.extend((due_ns, action) for action in faults.time_passed(due_ns))

    for number, (direction, gap_ms, frame) in enumerate(frames):
        now_ns += gap_ms * MS
        advance(now_ns)
        split = cut_at[number % len(cut_at)] % len(frame) if cut_at else 0
        for piece in (frame[:split], frame[split:]):
            if piece:
                actions = faults.received(direction, piece, now_ns)
                happened.extend((now_ns, action) for action in actions)
    for direction in Direction:
        happened.extend((now_ns, action) for action in faults.ended(direction, now_ns))
    advance(float("inf"))
    assert faults.is_cut or faults.held_bytes == 0
    return happened


@given(RULES, st.integers(0, 999).map(str), FRAMES, st.lists(st.integers(0, 99), max_size=5))
def test_the_same_seed_gives_the_same_fate_however_the_stream_was_cut(
    rules: list[str], seed: str, frames: Sent, cut_at: list[int]
) -> None:
    assert fate(rules, seed, frames, []) == fate(rules, seed, frames, cut_at)


@given(RULES, st.integers(0, 999).map(str), FRAMES)
def test_the_fate_of_one_direction_does_not_depend_on_the_other(
    rules: list[str], seed: str, frames: Sent
) -> None:
    def of(direction: Direction, frames: Sent) -> list[ProxyAction]:
        return [
            action
            for _, action in fate(rules, seed, frames, [])
            if getattr(action, "direction", None) is direction and isinstance(action, FaultApplied)
        ]

    if any(rule.startswith("cut") for rule in rules):
        return
    alone = [item for item in frames if item[0] is FORTH]
    assert of(FORTH, frames) == of(FORTH, alone)


@given(RULES, st.integers(0, 999).map(str), FRAMES)
def test_time_never_runs_backward_and_the_end_comes_once(
    rules: list[str], seed: str, frames: Sent
) -> None:
    happened = fate(rules, seed, frames, [])
    times = [at for at, _ in happened]
    assert times == sorted(times)
    ends = [action for _, action in happened if isinstance(action, EndStream)]
    assert len(ends) == len(set(ends))
    if not any(isinstance(action, CutConnection) for _, action in happened):
        assert len(ends) == 2


def test_another_seed_gives_another_fate() -> None:
    frames = [(BACK, 1, frame) for frame in FIVE * 20]
    fates = {str(fate(["drop probability=0.5"], str(seed), frames, [])) for seed in range(5)}
    assert len(fates) == 5
