"""Pure protocols for both ends of a connection: partition requests, data, credit and shutdown."""
