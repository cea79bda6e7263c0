"""The Transformer, and the variant whose decoder layers hold an SSRU instead of self-attention."""
