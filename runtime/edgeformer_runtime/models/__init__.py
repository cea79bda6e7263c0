"""Bundles as models with a name: found in folders, and read without being opened."""
