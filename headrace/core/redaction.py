"""Redaction: finds settings with secret values, and hides these values in logs, errors and URIs.

Source: Spark's `spark.redaction.regex`; Flink GlobalConfiguration.isSensitive.
"""

import logging
import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "******"
"""Text that replaces a secret value, as in Flink."""
PRIVATE_KEYS: Final = (
    "(?i)secret|passwo?r?d|passphrase|token|credential|(access|account|api|private|shared).?key"
    "|jaas|authorization"
)
"""Pattern of the names of settings with secret values; valid in Python and in Java."""
_PRIVATE: Final = re.compile(PRIVATE_KEYS)
_NAMES_A_FILE: Final = re.compile(r"(file|path|location|directory)\Z", re.IGNORECASE)
_USER_INFORMATION: Final = re.compile(r"(?<=://)[^/?#\s@]*:[^/?#\s]*(?=@)")
_PARAMETER: Final = re.compile(r"([?&;])([^=&;#\s]+)=([^&;#\s]*)")


class DiscreetFormatter(logging.Formatter):
    """Formats lines of a log, and hides passwords of URIs in them. Without a `date_format` lines have date and time."""

    def __init__(
        self,
        line_format: str = "%(asctime)s %(levelname)s %(name)s: %(message)s",
        date_format: str | None = "%H:%M:%S",
    ) -> None:
        super().__init__(line_format, date_format)

    def format(self, record: logging.LogRecord) -> str:
        return shown_uri(super().format(record))


def is_private(key: str) -> bool:
    """Return whether the value of the setting `key` is secret; the name of a file that holds a secret is not."""
    return bool(_PRIVATE.search(key)) and not _NAMES_A_FILE.search(key)


def shown_value(key: str, value: str) -> str:
    """Return the value of a setting as logs and errors may show it."""
    return HIDDEN if is_private(key) else shown_uri(value)


def shown_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings as logs and errors may show them."""
    return {key: shown_value(key, value) for key, value in settings.items()}


def without_private_values(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings whose values are not secret."""
    return {key: value for key, value in settings.items() if not is_private(key)}


def shown_uri(text: str) -> str:
    """Return a URI, or a text with URIs, without passwords after user names and in private parameters."""
    if "://" not in text:
        return text
    text = _USER_INFORMATION.sub(lambda found: f"{found[0].partition(':')[0]}:{HIDDEN}", text)
    return _PARAMETER.sub(
        lambda found: f"{found[1]}{found[2]}={HIDDEN if is_private(found[2]) else found[3]}", text
    )
