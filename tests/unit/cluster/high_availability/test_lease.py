"""The rules of the lease: when a standby may take over, and until when a leader leads."""

import msgspec
import pytest

from headrace.cluster.high_availability.lease import (
    HeldLease,
    LeaderRecord,
    LeaseObserver,
    LeaseTerms,
)
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError

TERMS = LeaseTerms(lease_duration_ms=6_000, renew_deadline_ms=4_000, retry_period_ms=1_000)
RECORD = LeaderRecord(epoch=3, holder="somebody")


def test_nobody_leads_where_there_is_no_record() -> None:
    assert LeaseObserver(TERMS).remaining_ms(None, 5.0) == 0


def test_a_standby_waits_for_a_whole_lease_however_old_the_record_is() -> None:
    assert LeaseObserver(TERMS).remaining_ms(RECORD, 1e9) == 6_000


def test_a_record_that_does_not_change_runs_out() -> None:
    observer = LeaseObserver(TERMS)
    remaining = [observer.remaining_ms(RECORD, now_ms) for now_ms in (100, 2_100, 6_099, 6_100)]
    assert remaining == [6_000, 4_000, 1, 0]


def test_each_change_of_the_record_prolongs_the_lease() -> None:
    observer = LeaseObserver(TERMS)
    observer.remaining_ms(RECORD, 0)
    renewed = msgspec.structs.replace(RECORD, renewals=1)
    assert observer.remaining_ms(renewed, 5_999) == 6_000
    assert observer.remaining_ms(renewed, 11_000) == 999


def test_of_a_leader_that_has_ended_nobody_waits_for_more_than_its_last_writes() -> None:
    observer = LeaseObserver(TERMS)
    moments = [(0, False), (1_000, True), (2_000, True), (3_000, False)]
    remaining = [observer.remaining_ms(RECORD, now_ms, has_ended=gone) for now_ms, gone in moments]
    assert remaining == [6_000, 2_000, 1_000, 0]
    # What is left of the lease may be less.
    observer = LeaseObserver(TERMS)
    observer.remaining_ms(RECORD, 0)
    assert observer.remaining_ms(RECORD, 5_500, has_ended=True) == 500
    # The next leader is another process.
    assert observer.remaining_ms(msgspec.structs.replace(RECORD, epoch=4), 5_600) == 6_000


def test_a_lease_that_was_given_back_is_free_at_once() -> None:
    observer = LeaseObserver(TERMS)
    observer.remaining_ms(RECORD, 0)
    assert observer.remaining_ms(msgspec.structs.replace(RECORD, is_released=True), 1) == 0


def test_a_leader_gives_up_when_its_last_renewal_began_too_long_ago() -> None:
    lease = HeldLease(TERMS, 3, 100)
    assert lease.is_valid(4_099)
    assert not lease.is_valid(4_100)
    lease.renewed(2_000)
    assert lease.is_valid(5_999)
    assert not lease.is_valid(6_000)


def test_the_defaults_are_terms_that_hold() -> None:
    assert LeaseTerms.from_settings(Settings()) == TERMS


@pytest.mark.parametrize(("key", "value"), [("renew-deadline", "6 s"), ("retry-period", "2100 ms")])
def test_terms_under_which_two_could_lead_are_refused(key: str, value: str) -> None:
    settings = Settings({f"high-availability.file.leader-election.{key}": value})
    with pytest.raises(ConfigurationError, match=key):
        LeaseTerms.from_settings(settings)
