"""Results of one job: where they lie, and what it reads of earlier jobs' results."""
