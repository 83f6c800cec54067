"""FileSource: files become splits, splits become records."""
