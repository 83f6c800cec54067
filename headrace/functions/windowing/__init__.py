"""Definition of windows: assigners and triggers, which users choose or implement."""
