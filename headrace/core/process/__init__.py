"""The process itself: its event loop, memory, interpreter, ports, import path and failpoints."""
