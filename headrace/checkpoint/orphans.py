"""Which files in a job's folder no complete checkpoint refers to: what failures have left behind. Pure.

Looked for when a driver has taken over and has not begun any checkpoint: then whatever is not complete never will be.
"""

import re
from collections.abc import Iterable
from typing import Final

from headrace.checkpoint.file_systems import FileEntry, child_uri, parent_uri
from headrace.checkpoint.leases import LEASES_FOLDER
from headrace.checkpoint.metadata import CompletedCheckpoint
from headrace.checkpoint.metadata_format import METADATA_NAME

_OWN: Final = re.compile(r"chk-\d+/(.+)")


def orphans_in(
    files: Iterable[FileEntry], completed: Iterable[CompletedCheckpoint]
) -> list[FileEntry]:
    """Return the files of checkpoints' folders and of `shared` that are referred to by none of `completed`.

    A metadata file stays in any case: either it is a complete checkpoint's, or it keeps one from being published. The
    leases on complete checkpoints stay too.
    Files elsewhere are not ours to judge.
    """
    completed = list(completed)
    used = {file.uri for one in completed for file in one.metadata.files()}
    leases = {child_uri(one.uri, LEASES_FOLDER) for one in completed}
    return [
        entry
        for entry in files
        if _is_judged(entry.relative_path)
        and entry.uri not in used
        and parent_uri(entry.uri) not in leases
    ]


def _is_judged(relative_path: str) -> bool:
    match = _OWN.fullmatch(relative_path)
    if match is not None:
        return match.group(1) not in (METADATA_NAME, f"{METADATA_NAME}.claim")
    return relative_path.startswith("shared/")
