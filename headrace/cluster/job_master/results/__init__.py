"""Results of one job: their locations, and the results of earlier jobs that it reads."""
