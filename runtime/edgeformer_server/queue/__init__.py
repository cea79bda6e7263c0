"""The queue of a model: sentences of many requests form batches, whose turns are fair."""
