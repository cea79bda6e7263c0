"""The grid of ``make bench``: edgeformer compared with its peers across models, workloads, lengths and threads."""
