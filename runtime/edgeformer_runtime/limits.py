"""Every limit on what a bundle may contain and on what a call may ask for.

A bundle is untrusted input: whatever it states is compared with these limits before anything is allocated for it. They
are far above what the exporter writes for models that fit on a device, and low enough that reading a bundle ends soon.
``docs/security.md`` lists them.
"""

from __future__ import annotations

MIB = 2**20
GIB = 2**30

# Files of a bundle.

MAX_FILES = 64
"""Files that a manifest lists."""
MAX_MANIFEST_BYTES = 16 * MIB
"""Size of the manifest."""
MAX_GRAPH_BYTES = 64 * MIB
"""Size of a graph file; weights are in a file of their own."""
MAX_TOKENIZER_BYTES = 64 * MIB
"""Size of a tokenizer file."""
MAX_GOLDEN_BYTES = 64 * MIB
"""Size of the file of golden examples."""
MAX_FILE_BYTES = 64 * GIB
"""Size of any other file, such as the weights."""

# Graphs.

MAX_NODES = 100_000
"""Nodes of a graph."""
MAX_TENSORS = 100_000
"""Constant tensors of a graph."""
MAX_AXES = 16
"""Axes of a tensor."""
MAX_OPSET = 1000
"""Version of an operator set."""
MAX_NAME_BYTES = 4096
"""Length of a name in a graph, in bytes."""
MAX_INLINE_BYTES = 16 * MIB
"""Size of a constant tensor that is stored in the graph file."""
MAX_WEIGHT_READS = 32
"""Total size of the tensors that a graph reads from the weight file, in multiples of the size of that file. Several
tensors may read the same bytes."""
