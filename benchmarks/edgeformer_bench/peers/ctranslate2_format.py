"""Token names of a converted CTranslate2 model, shared by converter and peer."""

from __future__ import annotations

from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.tokenizer import BOS_TOKEN, EOS_TOKEN, PAD_TOKEN, UNK_TOKEN


def token_names(vocab_size: int, special: SpecialTokens) -> list[str]:
    """Make a unique name for each id, since CTranslate2 identifies tokens by name; the tokenizer's names may repeat."""
    names = {special.pad: PAD_TOKEN, special.bos: BOS_TOKEN, special.eos: EOS_TOKEN}
    if special.unk is not None:
        names[special.unk] = UNK_TOKEN
    return [names.get(index, f"t{index}") for index in range(vocab_size)]
