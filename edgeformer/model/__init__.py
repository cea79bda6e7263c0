"""Model families: their configurations (light) and their torch modules (imported only when built)."""
