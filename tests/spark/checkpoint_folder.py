"""Checkpoints that a program writes below its folder, as a test sees them."""

from pathlib import Path


def newest_checkpoint(folder: Path) -> tuple[int, Path]:
    """Id and place of the last one that was published; id 0 before the first."""
    notes = (folder / "checkpoints").glob("*/newest")
    told = [(note.read_text().strip(), note.parent) for note in notes]
    # Whoever looks while it is written sees nothing in it.
    found = [(int(text), job) for text, job in told if text.isdigit()]
    newest, job = max(found, default=(0, folder))
    return newest, job / f"chk-{newest}"
