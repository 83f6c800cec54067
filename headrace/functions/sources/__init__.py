"""Sources that the runtime brings itself: collections, Arrow tables, ranges of numbers and DataFrames."""
