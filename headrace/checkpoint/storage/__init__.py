"""Storage of snapshots: places for new ones, their files, metadata, keys and lineages."""
