"""Elections between processes whose clocks differ and that sleep: at most one leads, and somebody does before long."""

import os
import random
from pathlib import Path

import pytest

from headrace.checkpoint.errors import CheckpointStorageError, RecordNotTrustedError
from headrace.checkpoint.storage.file_systems import read_all
from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.cluster.high_availability.leader_files import LeaderFiles
from headrace.cluster.high_availability.lease import LeaderRecord
from headrace.cluster.high_availability.process_lock import ProcessLock
from headrace.core.clock import ManualClock
from tests.unit.cluster.high_availability.elections import Contender, leader_files

STEP_MS = 50


def pass_time(contenders: list[Contender], duration_ms: int, start_ms: int = 0) -> int:
    """Let all of them run for a while; fail where two lead at once. Returns the time at the end."""
    for now_ms in range(start_ms, start_ms + duration_ms, STEP_MS):
        for each in contenders:
            each.pass_time(STEP_MS)
        for each in contenders:
            each.run(now_ms)
            assert sum(one.leads for one in contenders) <= 1, f"two lead at {now_ms} ms"
    return start_ms + duration_ms


def test_the_first_one_leads_and_goes_on_leading(tmp_path: Path) -> None:
    first, second = Contender(tmp_path, "a", 1), Contender(tmp_path, "b", 2)
    first.run(0)
    pass_time([first, second], 60_000)
    assert (first.leads, second.leads) == (True, False)
    assert first.election.epoch == 1


def test_a_standby_takes_over_within_a_lease_when_the_leader_is_gone(tmp_path: Path) -> None:
    first, second = Contender(tmp_path, "a", 1), Contender(tmp_path, "b", 2)
    first.run(0)
    now_ms = pass_time([first, second], 10_000)
    pass_time([second], 6_000 + 2 * STEP_MS, now_ms)
    assert second.leads
    assert second.election.epoch == 2


def test_a_standby_takes_over_at_once_where_the_leader_has_given_the_lease_back(
    tmp_path: Path,
) -> None:
    first, second = Contender(tmp_path, "a", 1), Contender(tmp_path, "b", 2)
    first.election.await_leadership()
    second.run(0)
    assert not second.leads
    first.election.close()
    assert not first.leads
    now_ms = pass_time([second], 1_000 + STEP_MS, 1_000)
    assert second.leads, now_ms


def test_a_standby_does_not_wait_for_the_lease_of_a_process_of_its_host_that_has_ended(
    tmp_path: Path,
) -> None:
    lock = ProcessLock(random.Random(1), ManualClock(), tmp_path)
    ended = tmp_path / (lock.name[:-32] + "0" * 32)
    ended.touch()
    leader_files(tmp_path).take(LeaderRecord(1, "a", process_lock=ended.name))
    standby = Contender(tmp_path, "b", 2, process_lock=lock)
    now_ms = pass_time([standby], 2_000)
    assert not standby.leads
    pass_time([standby], 2 * STEP_MS, now_ms)
    assert standby.leads
    assert not ended.exists()
    newest = leader_files(tmp_path).newest()
    assert newest is not None
    assert newest.process_lock == lock.name


def test_a_standby_waits_for_the_lease_of_a_process_of_its_host_that_only_sleeps(
    tmp_path: Path,
) -> None:
    locks = [ProcessLock(random.Random(seed), ManualClock(), tmp_path) for seed in (1, 2)]
    sleeper, standby = (
        Contender(tmp_path, name, index, process_lock=lock)
        for index, (name, lock) in enumerate(zip("ab", locks, strict=True))
    )
    sleeper.run(0)
    sleeper.sleeps_until_ms = 1e9
    now_ms = pass_time([sleeper, standby], 6_000)
    assert not standby.leads
    pass_time([sleeper, standby], 2 * STEP_MS, now_ms)
    assert standby.leads
    assert all((tmp_path / lock.name).exists() for lock in locks)


def test_a_leader_that_has_slept_for_too_long_leads_no_longer_before_it_looks(
    tmp_path: Path,
) -> None:
    first, second = Contender(tmp_path, "a", 1), Contender(tmp_path, "b", 2)
    first.run(0)
    first.sleeps_until_ms = 1e9
    pass_time([first, second], 20_000)
    with pytest.raises(LeadershipLostError, match="not renewed within 4 s"):
        first.election.validate()
    assert second.leads


def test_a_term_that_was_lost_never_holds_again_and_the_next_one_waits_until_it_is_wanted(
    tmp_path: Path,
) -> None:
    first, second = Contender(tmp_path, "a", 1), Contender(tmp_path, "b", 2)
    first.run(0)
    term = first.election.leadership
    assert term is not None
    first.sleeps_until_ms = 20_000
    now_ms = pass_time([first, second], 30_000)
    assert first.election.leader_text == "no leader is known now", "it has not looked"
    second.sleeps_until_ms = 1e9
    now_ms = pass_time([first, second], 30_000, now_ms)
    assert not first.leads, "what the term had begun may not have ended"
    first.election.contend_again()
    second.sleeps_until_ms = now_ms
    now_ms = pass_time([first, second], 5_000, now_ms)
    second.sleeps_until_ms = 1e9
    pass_time([first, second], 8_000, now_ms)
    assert first.leads
    assert (term.epoch, first.election.epoch) == (1, 3)
    with pytest.raises(LeadershipLostError):
        term.validate()


def test_a_standby_that_has_led_says_who_leads_now_and_when_it_leads_again(tmp_path: Path) -> None:
    first, second = Contender(tmp_path, "a", 1), Contender(tmp_path, "b", 2)
    heard: list[str] = []
    first.election.on_standby = lambda leader: heard.append(leader.holder if leader else "itself")
    first.run(0)
    second.run(0)
    second.election.announce("http://second")
    first.sleeps_until_ms = 10_000
    now_ms = pass_time([first, second], 15_000)
    first.election.contend_again()
    now_ms = pass_time([first, second], 2_000, now_ms)
    assert first.election.leader_text == "b at http://second leads it"
    second.sleeps_until_ms = 1e9
    pass_time([first, second], 8_000, now_ms)
    assert first.election.leader_text == "this process leads it"
    assert heard == ["itself", "b", "itself"]


def test_a_process_without_rivals_leads_again_as_soon_as_it_may(tmp_path: Path) -> None:
    only = Contender(tmp_path, "a", 1)
    only.run(0)
    only.sleeps_until_ms = 5_000
    now_ms = pass_time([only], 7_000)
    only.election.contend_again()
    pass_time([only], 1_000 + STEP_MS, now_ms)
    assert (only.leads, only.election.epoch) == (True, 2)


def test_what_was_written_while_another_one_took_over_is_not_confirmed(tmp_path: Path) -> None:
    first = Contender(tmp_path, "a", 1)
    first.run(0)
    leadership = first.election.leadership
    assert leadership is not None
    leadership.confirm()
    other = Contender(tmp_path, "b", 2)
    other.run(0)
    other.pass_time(6_000)
    other.run(6_000)
    # Its own clock says that it still leads: only the storage knows better.
    first.election.validate()
    with pytest.raises(LeadershipLostError, match="epoch 2"):
        leadership.confirm()


def test_a_leader_whose_storage_is_away_gives_up_in_time_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Contender(tmp_path, "a", 1)
    first.run(0)

    def fails(self: LeaderFiles) -> int:
        raise CheckpointStorageError("list", "there", "it is away")

    monkeypatch.setattr(LeaderFiles, "newest_epoch", fails)
    pass_time([first], 3_950)
    assert first.leads
    pass_time([first], 2 * STEP_MS, 3_950)
    assert not first.leads


def test_records_of_another_key_or_cluster_are_not_trusted(tmp_path: Path) -> None:
    Contender(tmp_path, "a", 1).run(0)
    stranger = LeaderFiles(str(tmp_path), "test", MetadataKey(b"s" * 32), random.Random(1))
    with pytest.raises(RecordNotTrustedError, match="key"):
        stranger.newest()
    with pytest.raises(RecordNotTrustedError, match="was not written for"):
        leader_files(tmp_path, cluster="other").newest()


@pytest.mark.parametrize("seed", range(20))
def test_at_most_one_leads_whatever_clocks_show_and_whoever_sleeps(
    tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    # Clocks of machines differ by parts of a thousand; the terms allow a fifth.
    contenders = [
        Contender(
            tmp_path, name, number, rate=drawn.uniform(0.9, 1.1), offset_ms=drawn.randrange(10**9)
        )
        for number, name in enumerate("abcdef")
    ]
    now_ms, led = 0, set[str]()
    for _ in range(12):
        awake = [each for each in contenders if each.sleeps_until_ms <= now_ms]
        if awake and drawn.random() < 0.7:
            leading = [each for each in awake if each.leads]
            victim = drawn.choice(leading or awake)
            victim.sleeps_until_ms = now_ms + drawn.choice([500, 3_000, 5_000, 9_000, 10**9])
        now_ms = pass_time(contenders, drawn.randrange(500, 9_000, STEP_MS), now_ms)
        led |= {each.name for each in contenders if each.leads}
    fresh = Contender(tmp_path, "g", 99)
    for each in contenders:
        each.sleeps_until_ms = 1e12
    pass_time([*contenders, fresh], 8_000, now_ms)
    assert fresh.leads
    assert fresh.election.epoch > len(led)


def test_the_next_leader_deletes_temporary_files_whose_writers_have_died(tmp_path: Path) -> None:
    first, second = Contender(tmp_path, "a", 1), Contender(tmp_path, "b", 2)
    first.run(0)
    left, young = tmp_path / ".epoch-00000001.aaaa", tmp_path / ".epoch-00000001.bbbb"
    for file in (left, young):
        file.write_bytes(b"a record")
    record_s = (tmp_path / "epoch-00000001").stat().st_mtime
    os.utime(left, (record_s - 700, record_s - 700))
    first.election.step()
    assert left.exists()
    pass_time([second], 7_000)
    assert second.leads
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        young.name, "epoch-00000001", "epoch-00000002",
    ]  # fmt: skip


def test_a_standby_that_could_not_lead_any_more_waits_no_longer_and_never_takes_over(
    tmp_path: Path,
) -> None:
    first, second = Contender(tmp_path, "a", 1), Contender(tmp_path, "b", 2)
    first.election.await_leadership()

    def check() -> None:
        # Its second look: the leader has gone, and it would lead.
        if second.election.leader_text != "no leader is known now":
            first.election.close()
            raise TimeoutError("its JVM is gone")

    with pytest.raises(TimeoutError, match="its JVM"):
        second.election.await_leadership(check)
    assert second.election.epoch == 0
    second.election.await_leadership()
    assert second.leads
    second.election.close()


def test_a_record_that_is_renewed_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Contender(tmp_path, "a", 1)
    leader.run(0)
    files, reads = leader_files(tmp_path, 2), list[int]()

    def cut_once(uri: str) -> memoryview:
        content = read_all(uri)
        reads.append(len(content))
        return content[: len(content) - (1 if len(reads) == 1 else 0)]

    monkeypatch.setattr(f"{LeaderFiles.__module__}.read_all", cut_once)
    record = files.newest()
    assert (record is not None and record.epoch, len(reads)) == (1, 2)


def test_a_record_that_stays_damaged_is_refused(tmp_path: Path) -> None:
    leader = Contender(tmp_path, "a", 1)
    leader.run(0)
    [file] = tmp_path.rglob("epoch-*")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RecordNotTrustedError, match="no seal"):
        leader_files(tmp_path, 2).newest()
