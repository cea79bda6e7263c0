"""Translation quality: evaluation, scores, significance, and tuning of the decoding defaults."""
