"""Training on pytorch-lightning, and the run folder it leaves."""
