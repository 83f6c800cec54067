"""What a program holds of a job that it submitted: its client, results and state."""
