"""Importers: models of other toolkits become run folders."""
