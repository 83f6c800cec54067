"""Exceptions that decoders raise for bytes that hold no value of their type, however they are damaged."""

from typing import Final

import msgspec

DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""ValueError is of text that is no UTF-8 and of endless digits, RecursionError of values within values without end."""
