"""Model families: lightweight configurations, and torch modules that are imported only when a model is built."""
