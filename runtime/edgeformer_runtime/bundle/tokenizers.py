"""The tokenizers of a bundle."""

from __future__ import annotations

from msgspec.structs import replace

from edgeformer_runtime.bundle.open import Bundle
from edgeformer_runtime.errors import BundleError
from edgeformer_runtime.limits import MAX_TOKENIZER_BYTES
from edgeformer_runtime.tokenizers import Tokenizer, special_tokens


def bundle_tokenizer(bundle: Bundle, name: str) -> Tokenizer:
    """Read a tokenizer file of a bundle.

    Raises:
        BundleError: the file is damaged, exceeds a limit, or has a component that bundles may not use.
        ConfigError: it needs packages that are not installed.
    """
    data = bundle.read(name, MAX_TOKENIZER_BYTES)
    return Tokenizer.from_content(data, f"{bundle.path}/{name}", bundle.manifest.text)


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
