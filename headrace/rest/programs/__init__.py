"""Programs that clients upload and have run: their files, and a process of its own for each run.

Duty: keep uploaded files for the owner of the cluster alone, bound their number and size, and run them elsewhere than
in the driver, which imports no code of a user.
Neighbours: `handlers/jars` answers the routes; the process is `headrace.cli.uploaded_program`.
Start reading: `uploaded_programs`, then `program_runs`.
"""
