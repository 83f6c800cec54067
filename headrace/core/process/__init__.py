"""The process itself: its memory, interpreter, import path and failpoints."""
