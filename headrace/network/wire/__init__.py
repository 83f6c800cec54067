"""The data plane's protocol: frames, their layout in bytes, the handshake and keepalives."""
