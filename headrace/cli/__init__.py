"""The command line: `headrace run` and its siblings, one file per command.

Neighbours: a host imports other edges; nobody imports a host.
Start reading: `main`.
"""
