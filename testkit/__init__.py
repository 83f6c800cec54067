"""What the project's own tests and chaos runs are made of; no part of the wheel."""
