"""Writes an imported model as a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgeformer.config import Recipe, recipe_from_tree
from edgeformer.errors import ImporterError
from edgeformer.importers.model import ImportedModel
from edgeformer.importers.sample import SENTENCES, readable_text
from edgeformer.model.base import EncoderDecoder
from edgeformer.model.build import build_model
from edgeformer.model.check import check_model
from edgeformer.model.session import TorchSession
from edgeformer.quality.evaluation import translate_all
from edgeformer.run.folder import MODEL_FILE, Run, refuse_used
from edgeformer.run.info import RunInfo, library_versions
from edgeformer.run.weights import save_weights
from edgeformer_runtime.search.options import DecodeOptions
from edgeformer_runtime.tokenizers import Tokenizer, special_tokens
from edgeformer_runtime.translator import Translator

SHORTLIST_FILE = "shortlist.npz"
FOR_SAMPLE = DecodeOptions(beam_size=1, max_len_a=2, max_len_b=20)
"""Names and dates are unlike what models were trained on; some would be translated until the limit of the model."""


def write_run(
    imported: ImportedModel,
    out: Path,
    origin: dict[str, Any],
    *,
    text: Sequence[str] = (),
    progress: Callable[[float], None] = lambda fraction: None,
) -> Run:
    """Write a run folder, as a whole or not at all.

    Args:
        imported: the model.
        out: the folder to write; missing or empty.
        origin: where the model comes from, for the record.
        text: sentences of the source language; by default, those of
            :func:`~edgeformer.importers.sample.readable_text`.
        progress: called with the fraction of the sample that is translated, 0 to 1.

    Raises:
        CheckpointError: the folder is not empty.
        ConfigError: the configuration contradicts itself.
        ImporterError: the weights do not fit the configuration.
    """
    refuse_used(out)
    recipe = _recipe(imported)
    source = Tokenizer.from_content(imported.source_tokenizer, "of the source", imported.text)
    target = Tokenizer.from_content(imported.target_tokenizer, "of the target", imported.text)
    model = _model(recipe, imported, source.vocab_size, target.vocab_size)
    sources = list(text or readable_text(source, imported.source_language))[:SENTENCES]
    languages = imported.source_language, imported.target_language
    session = TorchSession(model, special_tokens(source, target, target.target_prefix(*languages)))
    translator = Translator(session, source, target, FOR_SAMPLE, truncate=True, languages=languages)
    translations = translate_all(translator, sources, translator.defaults, progress=progress)
    info = RunInfo(
        status="imported",
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        source_vocab_size=model.source_vocab_size,
        target_vocab_size=model.target_vocab_size,
        provenance=origin,
        versions=library_versions(),
        generation=imported.generation,
        text=imported.text,
        quantization=dict(imported.quantization),
        notes=imported.notes,
    )
    pairs = [(source, best.text) for source, best in zip(sources, translations, strict=True)]

    def complete(folder: Path) -> None:
        if imported.shortlist is not None:
            imported.shortlist.save(folder / SHORTLIST_FILE)
        save_weights(model, folder / MODEL_FILE)

    tokenizers = imported.source_tokenizer, imported.target_tokenizer
    return Run.create(out, recipe, *tokenizers, sample=pairs, info=info, complete=complete)


def _recipe(imported: ImportedModel) -> Recipe:
    tree = {
        "model": {key: value for key, value in imported.model.items() if value is not None},
        "tokenizer": {"kind": "imported", "shared": imported.source_tokenizer == imported.target_tokenizer},
        "source_language": imported.source_language,
        "target_language": imported.target_language,
        "description": "Imported.",
    }
    return recipe_from_tree(tree, "of the imported model")


def _model(recipe: Recipe, imported: ImportedModel, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoder:
    """Build the model and fill in the weights, none of which may be missing, superfluous, or of another shape."""
    import torch

    try:
        model = build_model(recipe, source_vocab_size, target_vocab_size)
    except ValueError as error:
        raise ImporterError(f"The configuration of the model contradicts itself: {error}") from None
    given = dict(imported.weights)
    filled = set()
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            if name not in given:
                continue
            array = torch.from_numpy(given.pop(name).copy())
            if array.shape != tensor.shape:
                raise ImporterError(
                    f"Weight `{name}` has the shape {tuple(array.shape)} instead of {tuple(tensor.shape)}."
                )
            if not torch.isfinite(array).all():
                raise ImporterError(f"Weight `{name}` has values that are not finite numbers.")
            tensor.copy_(array)
            filled.add(tensor.data_ptr())
        missing = [name for name, tensor in model.state_dict(keep_vars=True).items() if tensor.data_ptr() not in filled]
    if missing or given:
        listed = ", ".join([*missing, *given][:5])
        raise ImporterError(f"The weights do not fit the configuration: {listed}.")
    check_model(model)
    return model.eval()
