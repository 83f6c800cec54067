"""A whole simulated cluster on one thread, from one seed: virtual time, a lossy network, workers that die."""
