"""The commands of the exporter."""
