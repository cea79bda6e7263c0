"""What a bundle holds, and how it is opened."""
