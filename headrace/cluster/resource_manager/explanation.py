"""What is missing and why, in one line for people. Pure."""

from collections.abc import Sequence

from headrace.cluster.resource_manager.slot_matching import MissingSlots
from headrace.gateways.messages import ResourceProfile


def explain_missing(
    missing: Sequence[MissingSlots],
    registered_count: int,
    slot_count: int,
    free_slot_count: int,
    pending: str,
) -> str:
    """Say which job lacks how many slots, what there is, and what is being waited for; empty where nothing lacks."""
    if not missing:
        return ""
    needs = ", ".join(
        f"job {entry.job_id.hex()[:8]} lacks {entry.missing_count} of {entry.required_count} slot(s)"
        f"{_profile_text(entry.profile)}"
        for entry in missing
    )
    has = (
        f"{registered_count} TaskManager(s) with {slot_count} slot(s) are registered, "
        f"{free_slot_count} of them free"
    )
    return f"{needs}; {has}" + (f"; {pending}" if pending else "")


def _profile_text(profile: ResourceProfile) -> str:
    parts: list[str] = []
    if profile.cpu_cores:
        parts.append(f"{profile.cpu_cores:g} core(s)")
    if profile.memory_bytes:
        parts.append(f"{profile.memory_bytes / (1 << 20):.0f} MiB")
    return f" of {' and '.join(parts)}" if parts else ""
