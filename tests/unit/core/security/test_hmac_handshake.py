"""The proof of the cluster's secret, and the bound on those who have not given it."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.security.hmac_handshake import PROOF_SIZE, HmacHandshake, Role, Strangers

SECRET, OTHER_SECRET = b"s" * 32, b"t" * 32
MINE, YOURS = b"hello of the dialler", b"hello of the acceptor"


def dialler(
    plane: bytes = b"rpc", secret: bytes = SECRET, reached: str = "host:1"
) -> HmacHandshake:
    return HmacHandshake(plane, Role.DIALLER, secret, reached)


def acceptor(
    plane: bytes = b"rpc", secret: bytes = SECRET, reached: str = "host:1"
) -> HmacHandshake:
    return HmacHandshake(plane, Role.ACCEPTOR, secret, reached)


def test_each_side_accepts_the_proof_of_the_other() -> None:
    proof = dialler().prove(MINE, YOURS)
    assert len(proof) == PROOF_SIZE
    assert acceptor().accepts(proof, YOURS, MINE)
    assert dialler().accepts(acceptor().prove(YOURS, MINE), MINE, YOURS)


def test_a_proof_by_another_secret_is_not_accepted() -> None:
    assert not acceptor().accepts(dialler(secret=OTHER_SECRET).prove(MINE, YOURS), YOURS, MINE)


def test_a_proof_of_one_plane_is_worth_nothing_on_the_other() -> None:
    assert not acceptor(b"data").accepts(dialler(b"rpc").prove(MINE, YOURS), YOURS, MINE)


def test_a_proof_that_is_relayed_to_another_process_is_not_accepted() -> None:
    proof = dialler(reached="host:1").prove(MINE, YOURS)
    assert not acceptor(reached="host:2").accepts(proof, YOURS, MINE)
    answer = acceptor(reached="host:2").prove(YOURS, MINE)
    assert not dialler(reached="host:1").accepts(answer, MINE, YOURS)


def test_ones_own_proof_is_not_accepted_back() -> None:
    own = acceptor()
    assert not own.accepts(own.prove(YOURS, MINE), YOURS, MINE)


def test_a_proof_for_other_hellos_is_not_accepted() -> None:
    proof = dialler().prove(MINE, YOURS)
    assert not acceptor().accepts(proof, YOURS, MINE + b"!")
    assert not acceptor().accepts(proof, YOURS[:-1], MINE)


def test_the_oldest_stranger_makes_room_for_the_newest() -> None:
    strangers = Strangers[str](count_max=2)
    assert [strangers.opened(name) for name in "abc"] == [None, None, "a"]
    strangers.no_longer("b")
    strangers.no_longer("a")
    assert strangers.opened("d") is None
    assert len(strangers) == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_strangers_never_exceed_their_bound(steps: list[tuple[bool, int]]) -> None:
    strangers = Strangers[int](count_max=3)
    known: set[int] = set()
    for is_opened, number in steps:
        if is_opened:
            known.add(number)
            dropped = strangers.opened(number)
            assert (dropped is not None) == (len(known) > 3)
            known.discard(-1 if dropped is None else dropped)
        else:
            known.discard(number)
            strangers.no_longer(number)
        assert len(strangers) == len(known) <= 3
