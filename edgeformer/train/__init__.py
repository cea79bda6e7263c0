"""Training, and the run folder that it writes."""
