"""Self-checks of a bundle. Imported only when verifying, never to translate."""
