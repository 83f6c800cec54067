"""Programs that clients upload and run: their files, and a separate process for each run.

Duty: store uploaded files for the cluster's owner only, limit their number and size, and run them outside of
the driver, which imports no user code.
Neighbours: `handlers/jars` answers the routes; the process is `headrace.cli.uploaded_program`.
Start reading: `uploaded_programs`, then `program_runs`.
"""
