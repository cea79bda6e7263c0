"""The tokenizer files of a bundle: which components of the ``tokenizers`` library they may have, and their sizes.

The library runs whatever a ``tokenizer.json`` describes: regular expressions of any cost, replacements that multiply
the text, random dropout. The types below are the components that bundles may use, without nested sequences. A file is
read as these types, and the library is given what was read, written again, not the file itself.

SentencePiece models (``.spm``) are checked by :mod:`~.sentencepiece_file`.
"""

# ruff: noqa: D101 - components have the names, and the meaning, that they have in the library.

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.bundle.plain_files import shortened
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.limits import (
    MAX_ADDED_TOKENS,
    MAX_AFFIX,
    MAX_COMPONENTS,
    MAX_TOKENIZER_BYTES,
    MAX_VOCAB_SIZE,
    Affix,
    Text,
)
from edgeformer_runtime.tokenizer import Tokenizer, special_tokens
from edgeformer_runtime.tokenizer.sentencepiece_file import SUFFIX

_CLITIC = r"['\u2019](?:s|m|d|re|ve|ll)(?![\w'\u2019])"
"""The end of an English contraction: ``'s`` of ``it's``."""

WORD_PATTERN = "|".join(
    (
        r" ?\w+?(?=n['\u2019]t(?!\w))",  # `do` of `don't` …
        r"n['\u2019]t(?!\w)",  # … and `n't`
        _CLITIC,
        rf" ?\w+(?!{_CLITIC})['\u2019](?=\w)",  # an elision: `l'` of `l'homme`
        r" ?\w+",
        r" ?[^\w\s]",
        r"\s",
    )
)
"""A word, an elision, the end of a contraction or a punctuation mark, with the space before it, or one white-space
character of any other kind. Splits French and English as the tokenizers of spaCy do."""

SPACE_PATTERN = r" ?<| ?[^\s<]+|\s"
"""Text between whitespace, with the space before it. ``<``, which begins every special token, is always separate, so no
merge can spell a special token."""

PATTERNS = (WORD_PATTERN, SPACE_PATTERN, r" ?\w+| ?[^\w\s]|\s")
"""Every regular expression that bundles may use; the last is that of earlier word-level vocabularies. Others could take
exponential time, which their text does not show."""

Id = Annotated[int, msgspec.Meta(ge=0, lt=MAX_VOCAB_SIZE)]
Character = Annotated[str, msgspec.Meta(min_length=1, max_length=1)]
Offset = Annotated[int, msgspec.Meta(ge=0, le=MAX_AFFIX)]
Behavior = Literal["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


class _Component(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    """A component of the library; its tag is its type in the file."""


# Normalizers: text to text.


class Lowercase(_Component, tag="Lowercase"): ...


class NFC(_Component, tag="NFC"): ...


class NFD(_Component, tag="NFD"): ...


class NFKC(_Component, tag="NFKC"): ...


class NFKD(_Component, tag="NFKD"): ...


class Nmt(_Component, tag="Nmt"): ...


class StripAccents(_Component, tag="StripAccents"): ...


class StripSpace(_Component, tag="Strip"):
    strip_left: bool
    strip_right: bool


class Prepend(_Component, tag="Prepend"):
    prepend: Affix


Normalizer = Lowercase | NFC | NFD | NFKC | NFKD | Nmt | StripAccents | StripSpace | Prepend


class Normalizers(_Component, tag="Sequence"):
    normalizers: Annotated[list[Normalizer], msgspec.Meta(max_length=MAX_COMPONENTS)]


# Pre-tokenizers: text to words, and decoders: tokens to text.


class ByteLevel(_Component, tag="ByteLevel"):
    add_prefix_space: bool
    trim_offsets: bool
    use_regex: bool


class Metaspace(_Component, tag="Metaspace"):
    replacement: Character
    prepend_scheme: Literal["first", "never", "always"]
    split: bool


class Digits(_Component, tag="Digits"):
    individual_digits: bool


class Punctuation(_Component, tag="Punctuation"):
    behavior: Behavior


class Whitespace(_Component, tag="Whitespace"): ...


class WhitespaceSplit(_Component, tag="WhitespaceSplit"): ...


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A regular expression."""

    Regex: str


class Split(_Component, tag="Split"):
    pattern: Pattern
    behavior: Behavior
    invert: bool


class Fuse(_Component, tag="Fuse"): ...


class StripTokens(_Component, tag="Strip"):
    content: Character
    start: Offset
    stop: Offset


PreTokenizer = ByteLevel | Metaspace | Digits | Punctuation | Whitespace | WhitespaceSplit | Split
Decoder = ByteLevel | Metaspace | Fuse | StripTokens


class PreTokenizers(_Component, tag="Sequence"):
    pretokenizers: Annotated[list[PreTokenizer], msgspec.Meta(max_length=MAX_COMPONENTS)]


class Decoders(_Component, tag="Sequence"):
    decoders: Annotated[list[Decoder], msgspec.Meta(max_length=MAX_COMPONENTS)]


# Models. Vocabularies and merges are data, whose size the file's size limits; the library reads them.


class BPE(_Component, tag="BPE"):
    vocab: msgspec.Raw
    merges: msgspec.Raw
    dropout: None = None
    unk_token: Text | None = None
    continuing_subword_prefix: Affix | None = None
    end_of_word_suffix: Affix | None = None
    fuse_unk: bool = False
    byte_fallback: bool = False
    ignore_merges: bool = False


class Unigram(_Component, tag="Unigram"):
    vocab: msgspec.Raw
    unk_id: Id
    byte_fallback: bool = False


class WordLevel(_Component, tag="WordLevel"):
    vocab: msgspec.Raw
    unk_token: Text


class AddedToken(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A token that is never split."""

    id: Id
    content: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_AFFIX)]
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool


class TokenizerFile(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Content of a tokenizer file."""

    version: Literal["1.0"]
    truncation: None = None
    padding: None = None
    added_tokens: Annotated[list[AddedToken], msgspec.Meta(max_length=MAX_ADDED_TOKENS)]
    normalizer: Normalizer | Normalizers | None
    pre_tokenizer: PreTokenizer | PreTokenizers | None
    post_processor: None = None
    decoder: Decoder | Decoders | None
    model: BPE | Unigram | WordLevel


def checked_tokenizer(data: bytes) -> str:
    """Check a ``tokenizer.json`` and return what the library may be given.

    Raises:
        ValueError: a component is not allowed, or exceeds a limit.
    """
    file = msgspec.json.decode(data, type=TokenizerFile)
    for component in _components(file.pre_tokenizer):
        if isinstance(component, Split) and component.pattern.Regex not in PATTERNS:
            raise ValueError("it splits text by an unknown regular expression")
    return msgspec.json.encode(file).decode("utf-8")


def bundle_tokenizer(bundle: Bundle, name: str) -> Tokenizer:
    """Read a tokenizer file of a bundle.

    Raises:
        BundleError: the file is damaged, exceeds a limit, or has a component that bundles may not use.
        ConfigError: it needs packages that are not installed.
    """
    data = bundle.read(name, MAX_TOKENIZER_BYTES)
    try:
        content = data if name.endswith(SUFFIX) else checked_tokenizer(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BundleError(
            f"Bundle `{bundle.path}`: tokenizer `{name}` is damaged, or has a part that bundles may not have: "
            f"{shortened(error)}. Export the bundle again."
        ) from None
    return Tokenizer.from_content(content, name, bundle.manifest.text)


def _components(part: PreTokenizer | PreTokenizers | None) -> Sequence[Any]:
    return part.pretokenizers if isinstance(part, PreTokenizers) else (part,)


def bundle_tokenizers(bundle: Bundle) -> tuple[Tokenizer, Tokenizer]:
    """Open the tokenizers of the source and the target side, which are the same object if they share a file.

    Raises:
        BundleError: a file is not valid, or its vocabulary or special tokens are not those of the model.
    """
    files = bundle.manifest.tokenizers
    source = bundle_tokenizer(bundle, files.source)
    target = source if files.target == files.source else bundle_tokenizer(bundle, files.target)
    manifest = bundle.manifest
    sizes = {"source": manifest.source_vocab_size, "target": manifest.target_vocab_size}
    own = special_tokens(source, target, manifest.special.prefix)
    if manifest.special.unk is None:
        own = replace(own, unk=None)
    for side, tokenizer in (("source", source), ("target", target)):
        if tokenizer.vocab_size > sizes[side] or (tokenizer is target and own != manifest.special):
            raise BundleError(
                f"Bundle `{bundle.path}`: the {side} tokenizer, with {tokenizer.vocab_size} tokens, is not the "
                "model's; export the bundle again."
            )
    return source, target
