"""Every limit on what a bundle may contain and on what a call may ask for.

A bundle is untrusted input: whatever it states is compared with these limits before anything is allocated for it. They
are far above what the exporter writes for models that fit on a device, and low enough that reading a bundle ends soon.
``docs/security.md`` lists them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

MIB = 2**20
GIB = 2**30

# Files of a bundle.

MAX_FILES = 64
"""Files that a manifest lists."""
MAX_MANIFEST_BYTES = 16 * MIB
"""Size of the manifest."""
MAX_GRAPH_BYTES = 64 * MIB
"""Size of a graph file; weights are in a file of their own."""
MAX_TOKENIZER_BYTES = 32 * MIB
"""Size of a tokenizer file."""
MAX_GOLDEN_BYTES = 64 * MIB
"""Size of the file of golden examples."""
MAX_SIGNATURE_BYTES = 4096
"""Size of the signature."""
MAX_SHORTLIST_BYTES = 256 * MIB
"""Size of the file of shortlists."""
MAX_FILE_BYTES = 64 * GIB
"""Size of any other file, such as the weights."""

# Graphs.

MAX_GRAPH_FIELDS = 1_000_000
"""Parts of a graph: nodes, with their inputs, outputs and attributes, and constants."""
MAX_AXES = 16
"""Axes of a tensor."""
MAX_OPSET = 1000
"""Version of an operator set."""

# The manifest.

MAX_TEXT = 200
"""Characters of a name or another short text."""
MAX_COUNT = 2**53
"""Any whole number that is only recorded; larger ones are not exact in every JSON reader."""
MAX_OPERATOR_SETS = 16
"""Operator sets."""
MAX_STATE_TENSORS = 10_000
"""State tensors."""
MAX_AXIS = 2**20
"""Fixed size of an axis of a state tensor."""
MAX_LANGUAGES = 10_000
"""Languages of a model."""
MAX_AFFIX_TOKENS = 64
"""Tokens before or after those of a text, and tokens that are never generated."""
MAX_VOCAB_SIZE = 2**24
"""Entries of a vocabulary."""
MAX_LENGTH = 2**16
"""Tokens of a source or a target."""
MAX_LENGTH_PENALTY = 10
"""Absolute value of a length penalty: far beyond any practical value, and far from overflow."""

# Tokenizers.

MAX_COMPONENTS = 16
"""Components of a sequence."""
MAX_ADDED_TOKENS = 1024
"""Tokens beside the model's vocabulary."""
MAX_AFFIX = 64
"""Characters of an added token, or of text that a component adds or removes."""

MAX_CHARSMAP_BYTES = 4 * MIB
"""Character rules of a SentencePiece model."""
MAX_PIECES = 2**20
"""Pieces of a SentencePiece model."""
MAX_PIECE = 128
"""Characters of a piece."""

# Golden examples.

MAX_EXAMPLES = 1000
"""Examples."""

# Calls.

MAX_THREADS = 256
"""Threads of an operator. Every graph has its own."""
MAX_WORKERS = 256
"""Batches decoded at a time."""
MAX_BEAM_SIZE = 1024
"""Hypotheses kept per sentence."""
MAX_OPTION = 2**31 - 1
"""Any other whole number among the decoding options."""
MAX_DECODING_BYTES = 8 * GIB
"""Memory for decoder state and logits of all batches that are decoded at a time, estimated before decoding, for
translations as long as allowed."""
MAX_LINE_BYTES = MIB
"""Bytes of a line of input, which bounds the memory that unsuitable input takes, such as a small gzip of many zeros."""
MAX_TEXT_CHARACTERS = 2**20
"""Characters of a text to translate. Tokenizing that many takes seconds and less than a gigabyte."""

# Documents, which are untrusted too.

MAX_DOCUMENT_BYTES = 128 * MIB
"""Size of a document, and of all that is packed in it."""
MAX_DOCUMENT_ELEMENTS = 1_000_000
"""Elements, attributes and comments of all XML of a document, which take a few bytes in a file, but hundreds in
memory; tags, links and lines of a text file."""
MAX_DOCUMENT_DEPTH = 10
"""Paragraphs inside each other, as those of text boxes are."""
MAX_DOCUMENT_FILES = 10_000
"""Files that are packed in a document."""

# Types of bundle records: msgspec refuses values beyond the limits while it reads them.

Number = Annotated[int, msgspec.Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
"""A whole number."""
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT, pattern=r"\A[^\x00-\x1f\x7f-\x9f]*\Z")]
"""A short text without control characters, which a terminal could obey."""
Affix = Annotated[str, msgspec.Meta(max_length=MAX_AFFIX)]
"""A short text that a tokenizer adds, removes or looks for."""
