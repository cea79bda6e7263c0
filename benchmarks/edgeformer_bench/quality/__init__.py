"""Test sets: what models are judged by beside their own corpora."""
