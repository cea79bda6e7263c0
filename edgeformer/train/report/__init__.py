"""What a training shows of itself: on the console, in metrics files, and as a picture."""
