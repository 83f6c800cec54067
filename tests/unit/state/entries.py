"""Entries of the states of a backend, to be counted."""

from headrace.state.typed_state import TypedStateBackend


def total_entry_count(backend: TypedStateBackend) -> int:
    """Return the number of entries of all states: 0 where nothing is left behind."""
    return sum(backend.key_count(form.name) for form in backend.forms())
