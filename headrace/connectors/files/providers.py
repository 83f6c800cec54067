"""Which splits a file source makes of its files, and who gets them: PyFlink's providers as plain values.

Source: Flink FileEnumerator.Provider, FileSplitAssigner.Provider.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class FileEnumeratorProvider:
    """Whether files are cut into ranges. Either way folders are searched through and hidden files left out."""

    is_splitting: bool

    @staticmethod
    def default_splittable_file_enumerator() -> "FileEnumeratorProvider":
        """Cut large files into ranges, where the format can read them so."""
        return FileEnumeratorProvider(is_splitting=True)

    @staticmethod
    def default_non_splittable_file_enumerator() -> "FileEnumeratorProvider":
        """Make one split of each file."""
        return FileEnumeratorProvider(is_splitting=False)


@dataclass(frozen=True)
class FileSplitAssignerProvider:
    """Who gets which split next."""

    is_locality_aware: bool

    @staticmethod
    def locality_aware_split_assigner() -> "FileSplitAssignerProvider":
        """Give a reader splits of its own host first: none is known to be of a host, so any reader gets the next."""
        return FileSplitAssignerProvider(is_locality_aware=True)
