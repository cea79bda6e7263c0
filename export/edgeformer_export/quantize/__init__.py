"""Quantization: calibration, the passes that quantize, and the precision of each layer."""
