"""Errors of archives.

ArchiveError
+- DamagedArchiveError     a file is no whole archive of its job
"""

from headrace.core.errors import ErrorDomain, HeadraceError


class ArchiveError(HeadraceError):
    """Base of the errors of this file."""

    domain, recoverable = ErrorDomain.EXTERNAL, False


class DamagedArchiveError(ArchiveError):
    """A file that cannot be read as an archive: cut off, changed, or never one. It is left as it is."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place} is no whole archive of a job: {reason}; it is not shown, and stays until you delete it"
        )
        self.place = place
        self.reason = reason
