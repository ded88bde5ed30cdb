"""What users read is as it was read aloud last."""

from __future__ import annotations

from tests.golden.messages import FILE, messages


def test_messages_are_those_that_were_read() -> None:
    assert messages() == FILE.read_text(), "a message has changed: read it aloud, then python -m tests.golden.messages"
