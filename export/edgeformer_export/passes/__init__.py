"""Graph passes, one file each, and the pipeline that runs them and shows what each did."""
