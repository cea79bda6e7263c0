"""Quantization: calibration, the passes that quantize, and which layer gets which precision."""
