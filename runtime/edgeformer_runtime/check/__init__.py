"""Self-checks of a bundle. Imported only by verification, never by translation."""
