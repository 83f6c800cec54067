"""The command line: `headrace run` and the other commands, one file per command.

Neighbours: a host imports other edges; nobody imports a host.
Start reading: `main`.
"""
