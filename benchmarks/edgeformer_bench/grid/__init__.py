"""The grid of ``make bench``: edgeformer against its peers, over models, workloads, lengths and threads."""
