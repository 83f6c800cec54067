"""Tools of the project's own tests and chaos runs; not part of the wheel."""
