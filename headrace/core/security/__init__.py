"""How processes of a cluster know each other: the secret, the handshake, TLS, and the log of refusals."""
