"""Lists at the end of the run what deserves a hard look, without failing it."""

import pytest

from tests.architecture.tidiness import (
    FILE_LINES_LOOK,
    FUNCTION_LINES_LOOK,
    long_files,
    long_functions,
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for title, rows in (
        (
            f"files above {FILE_LINES_LOOK} lines: look for the second duty",
            long_files(FILE_LINES_LOOK),
        ),
        (f"functions above {FUNCTION_LINES_LOOK} lines", long_functions(FUNCTION_LINES_LOOK)),
    ):
        if rows:
            terminalreporter.section(title)
            for row in rows:
                terminalreporter.line(row)
