"""Studies of whole texts: numbers, punctuation, markup, glossaries, confidence, alternatives."""
