"""Programs that make the training text of the models in the box; see README.md."""
