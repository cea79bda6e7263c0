"""Sequence-level knowledge distillation."""
