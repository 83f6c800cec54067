"""The answer of the digest job, and what poison leaves out of it."""

from testkit.chaos.digest_job import (
    DigestJob,
    PoisonPolicy,
    expected_dead_letters,
)


def test_the_answer_has_a_row_for_every_number_and_one_per_key_and_span_of_time() -> None:
    job = DigestJob(count=2_000, key_count=96)
    rows = job.expected_rows()
    assert len(rows) == len(set(rows))
    assert sum(row.startswith("n ") for row in rows) == 2_000
    assert sum(row.startswith("t ") for row in rows) == 96 * 4


def test_poison_is_in_no_row_of_the_answer_and_once_among_the_dead_letters() -> None:
    clean = DigestJob(count=2_000, key_count=96)
    job = DigestJob(count=2_000, key_count=96, poison_every=97, policy=PoisonPolicy.DEAD_LETTER)
    letters = expected_dead_letters(job)
    assert len(letters) == len(set(letters)) == 20
    assert letters[0] == "96: ValueError: 96 is poison"
    numbers = [row for row in job.expected_rows() if row.startswith("n ")]
    assert len(numbers) == 2_000 - 20
    assert set(clean.expected_rows()) - set(job.expected_rows())
