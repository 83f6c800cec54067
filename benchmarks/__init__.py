"""Questions of speed and memory, one per file, each answered against a named rival."""
