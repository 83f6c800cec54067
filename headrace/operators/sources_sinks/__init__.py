"""Where rows enter and leave a job: source readers, event time, sinks and their writers."""
