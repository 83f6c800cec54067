"""JSON: rows as messages, their schema, and their values."""
