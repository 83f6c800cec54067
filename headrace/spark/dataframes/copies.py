"""Where DataFrames are copied that cannot be computed again row by row: in folders that their owner alone may enter.

They lie beside the job's checkpoints, whose positions are positions in them; those of a job whose checkpoints do not
outlive its driver, in a new folder for temporary files.
"""

import logging
import tempfile
from pathlib import Path
from typing import Final

from headrace.checkpoint.options import CHECKPOINT_DIRECTORY, SHARED_FILES
from headrace.checkpoint.storage.file_systems import make_folder
from headrace.connectors.files.paths import file_system_of, fixed_place
from headrace.connectors.files.sink.staging import remove_if_empty
from headrace.core.config import Settings

_LOG: Final = logging.getLogger(__name__)
COPIES: Final = "dataframes"
"""Folder of the copies, below `execution.checkpointing.dir`."""
_PASSING: Final = f"headrace-{COPIES}-"


def make_folder_of_copies(settings: Settings) -> str:
    """Return a folder for copies, which is there. CheckpointStorageError, OSError."""
    directory = settings.get_option(CHECKPOINT_DIRECTORY)
    if not directory:
        return tempfile.mkdtemp(prefix=_PASSING)
    folder = f"{fixed_place(directory)}/{COPIES}"
    make_folder(folder, is_shared=settings.get_option(SHARED_FILES))
    return folder


def is_passing(copy_path: str) -> bool:
    """Whether a copy need not outlive the driver, whose memory holds the checkpoints too."""
    return Path(copy_path).parent.name.startswith(_PASSING)


def delete_copy(copy_path: str) -> None:
    """Delete a copy, and its folder where that is empty. May block."""
    file_system, path = file_system_of(copy_path)
    try:
        file_system.delete_dir(path)
        remove_if_empty(file_system, path.rpartition("/")[0])
    except OSError as error:
        _LOG.warning("the copy of a DataFrame at %s was not deleted: %s", copy_path, error)
