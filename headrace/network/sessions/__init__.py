"""Pure protocols of the two ends of a connection: partition requests, data, credit, and their end."""
