"""Plans for the kernels: where a bundle has what they compute."""
