"""The column "sent by" of the protocol's page says what the code does."""

import pytest

from headrace.network.wire.framing import declared_frames
from tools.pages import frame_senders as page
from tools.pages.frame_senders import frame_senders


def test_every_frame_has_a_sender_or_a_reason_why_there_is_none() -> None:
    senders = frame_senders()
    assert set(senders) == {frame.__name__ for frame in declared_frames()}
    assert all(senders.values())
    assert senders["Data"] == "`ProducerSession`"
    assert senders["ResumeConsumption"] == "`ConsumerSession`"
    assert senders["TaskEvent"] == "nobody yet: for iterations"


def test_a_frame_that_has_begun_to_be_sent_makes_the_page_stale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(page._WANTED_BY, "AddCredit", "for nothing")
    with pytest.raises(ValueError, match="said to be so"):
        frame_senders()
