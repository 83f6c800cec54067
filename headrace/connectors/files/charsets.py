"""What is said of a file whose bytes are not in the charset that it is read in."""

from typing import Final

ONLY_UTF_8: Final = "CSV and JSON files must be: convert it"


class CharsetError(ValueError):
    """A file is not in the charset that it is read in. `offset`: of its first wrong byte, uncompressed.

    No error of the tree: the operator that reads adds its name and the user's line.
    """

    def __init__(
        self, name: str, charset_name: str, offset: int, wrong: bytes, advice: str
    ) -> None:
        super().__init__(
            f"the file '{name}' is not {charset_name}: 0x{wrong.hex()} at byte {offset} cannot be read; {advice}"
        )
        self.offset = offset

    @staticmethod
    def of(
        error: UnicodeDecodeError,
        name: str,
        charset_name: str,
        begin: int,
        advice: str = "name its charset, as in StreamFormat.text_line_format('ISO-8859-1')",
    ) -> "CharsetError":
        """Return it for `error`, of bytes that begin at offset `begin`."""
        wrong = error.object[error.start : error.end]
        return CharsetError(name, charset_name, begin + error.start, wrong, advice)
