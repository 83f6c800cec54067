"""Sources and sinks: source readers, event time, sinks and their writers."""
