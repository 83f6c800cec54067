"""JSON: rows as messages, their schema, and the values in them."""
