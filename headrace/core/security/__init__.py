"""Authentication between the processes of a cluster: the secret, the handshake, TLS, and the log of refusals."""
