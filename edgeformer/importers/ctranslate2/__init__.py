"""CTranslate2's encoder–decoder Transformers: ``model.bin``, ``config.json`` and vocabularies."""
