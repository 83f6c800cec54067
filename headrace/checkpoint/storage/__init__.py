"""Where snapshots lie: places for new ones, their files, metadata, keys and lineages."""
