"""Reports of a training: on the console, in metrics files, and as a picture."""
