"""Contents of a bundle, and how it is opened."""
