"""What the command ``translate`` writes: lines, whole texts, attention."""
