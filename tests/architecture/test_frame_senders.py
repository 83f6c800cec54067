"""The column "sent by" of the protocol's page says what the code does."""

import pytest

from headrace.network.wire.framing import declared_frames
from tools.pages import frame_senders as page
from tools.pages.frame_senders import frame_senders


def test_every_frame_has_a_sender() -> None:
    senders = frame_senders()
    assert set(senders) == {frame.__name__ for frame in declared_frames()}
    assert all(senders.values())
    assert senders["Data"] == "`SequenceNumberingViewReader`"
    assert senders["ResumeConsumption"] == "`ConsumerSession`"


def test_a_frame_that_nobody_sends_is_to_be_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "_SENDING", ())
    with pytest.raises(ValueError, match=r"nobody sends .*'AddCredit'"):
        frame_senders()
