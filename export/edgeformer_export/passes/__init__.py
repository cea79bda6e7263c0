"""Graph passes, one file each, and the pipeline that runs them and records what each one did."""
