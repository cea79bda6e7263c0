"""Commands that need no torch, and what all commands print with."""
