"""Hugging Face Optimum on ONNX Runtime, with the weights of a run as a Marian model.

Requires ``optimum-onnx`` with torch. It depends on older versions of ``tokenizers`` and ``huggingface_hub`` than the
rest of the project, so it may need a separate environment; its process then uses that environment's interpreter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from edgeformer.staged_folder import staged_folder
from edgeformer_bench.peers.base import Peer, PeerCall, PeerError, PeerSpec, Weights
from edgeformer_bench.peers.converted import ConvertedModel, save_rules
from edgeformer_runtime.bundle.manifest import SpecialTokens

if TYPE_CHECKING:
    from edgeformer.run.folder import Run

NORM_EPSILON = 1e-5
"""Epsilon that Hugging Face's Marian models add to the variance of a norm."""
GRAPHS = ("encoder_model", "decoder_model", "decoder_with_past_model")
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "gelu_sigmoid": "quick_gelu",
    "silu": "silu",
}


class OptimumPeer(Peer):
    """An exported model, opened with :class:`ORTModelForSeq2SeqLM`."""

    def __init__(self, folder: Path, threads: int) -> None:
        import onnxruntime
        import torch
        from optimum.onnxruntime import ORTModelForSeq2SeqLM
        from optimum.version import __version__

        self.version = f"optimum {__version__}, onnxruntime {onnxruntime.__version__}"
        torch.set_num_threads(threads)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        names = ("encoder_file_name", "decoder_file_name", "decoder_with_past_file_name")
        files = {name: next(folder.glob(f"{graph}*.onnx")).name for name, graph in zip(names, GRAPHS, strict=True)}
        self._model = ORTModelForSeq2SeqLM.from_pretrained(folder, session_options=options, **files)
        self._converted = ConvertedModel(folder)

    def prepare(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> PeerCall:
        """See :meth:`Peer.prepare`; Optimum reads and writes padded tensors."""
        import torch

        special = self._converted.special
        width = max(map(len, sources))
        source = torch.full((len(sources), width), special.pad)
        for row, ids in zip(source, sources, strict=True):
            row[: len(ids)] = torch.tensor(ids)
        mask = torch.arange(width) < torch.tensor([len(ids) for ids in sources])[:, None]
        limits = {} if length is None else {"min_new_tokens": length, "max_new_tokens": length}
        run = partial(
            self._model.generate,
            input_ids=source,
            attention_mask=mask.long(),
            num_beams=beam_size,
            do_sample=False,
            **limits,
        )
        ends = [length] * len(sources) if length else self._converted.limits(sources)

        def cut(output: Any) -> list[list[int]]:
            return [
                row[: min(end, row.index(special.eos))] if special.eos in row else row[:end]
                for row, end in zip(output[:, 1:].tolist(), ends, strict=True)
            ]

        return PeerCall(run, cut)


def open_peer(spec: PeerSpec) -> OptimumPeer:
    """Open the output of :func:`convert_run`."""
    return OptimumPeer(Path(spec.model), spec.threads)


def convert_run(run: Run, out: Path, weights: Weights) -> None:
    """Export a Marian model with a run's weights; ``int8`` is Optimum's dynamic quantization.

    Raises:
        PeerError: Marian does not support the model.
    """
    from optimum.exporters.onnx import onnx_export_from_model
    from optimum.onnxruntime import ORTQuantizer
    from optimum.onnxruntime.configuration import AutoQuantizationConfig

    if run.info.text.target_prefix:
        raise PeerError("Optimum's Marian models do not support a `target_prefix`.")
    model = marian(run.load_model(), run.special, length_penalty=run.info.generation.length_penalty)
    with staged_folder(out) as result, TemporaryDirectory() as temporary:
        exported = result if weights == "float32" else Path(temporary)
        # Exported from memory: saving a Marian model drops its position tables, and opening it creates different ones.
        task = "text2text-generation-with-past"
        onnx_export_from_model(model, exported, task=task, no_post_process=True, do_validation=False)
        if weights == "int8":
            settings = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=True)
            for graph in GRAPHS:
                quantizer = ORTQuantizer.from_pretrained(exported, file_name=f"{graph}.onnx")
                quantizer.quantize(save_dir=result, quantization_config=settings)
            model.generation_config.save_pretrained(result)
        save_rules(run, model.generation_config.max_length - 1, result)


def marian(model: Any, special: SpecialTokens, *, length_penalty: float = 1.0) -> Any:
    """Build a ``MarianMTModel`` that computes the same results as one of our Transformers.

    Raises:
        PeerError: Marian does not support the model.
    """
    import torch
    from transformers import MarianMTModel

    _require_supported(model)
    converted = MarianMTModel(_settings(model, special)).eval()
    with torch.no_grad():
        for target, parameter in _pairs(converted, model):
            target[: len(parameter)] = parameter  # one of the position tables may be longer than the model's
    length = model.config.max_target_length + 1
    converted.generation_config.update(
        max_length=length,
        num_beams=1,
        bad_words_ids=None,
        suppress_tokens=sorted({*special.suppress, *special.forbid}),
        length_penalty=length_penalty,
    )
    return converted


def _require_supported(model: Any) -> None:
    from edgeformer.model.transformer.model import Transformer
    from edgeformer.model.transformer.self_attention import CausalSelfAttention

    if not isinstance(model, Transformer) or not all(
        isinstance(layer.target_layer, CausalSelfAttention) for layer in model.decoder_layers
    ):
        raise PeerError("Optimum's Marian models correspond to the family `transformer` only.")
    config = model.config
    if not config.key_width * config.heads == config.value_width * config.heads == config.d_model:
        raise PeerError(
            "Optimum's Marian models do not support heads whose widths, `d_k` and `d_v`, differ from `d_model` / "
            "`heads`."
        )
    needed = {
        "norm": config.norm == "post",
        "final_norm": not config.has_final_norm,
        "norm_type": config.norm_type == "layer",
        "norm_epsilon": config.norm_epsilon == NORM_EPSILON,
        "embedding_norm": not config.embedding_norm,
        "encoder_attention_only": not config.encoder_attention_only,
        "share_head_projection": not config.share_head_projection,
        "attention_scale": config.attention_scale == "d_k",
        "positions": config.positions != "none",
        "relative_bias": config.relative_bias is None,
        "scale_embeddings": isinstance(config.scale_embeddings, bool),
        "ffn_gated": not config.ffn_gated,
        "tied_embeddings": config.tied_embeddings != "inputs",
        "output_scale": config.output_scale == 1,
    }
    for name, is_supported in needed.items():
        if not is_supported:
            raise PeerError(f"Optimum has no Marian model with this `{name}`, {getattr(config, name)!r}.")


def _settings(model: Any, special: SpecialTokens) -> Any:
    """Convert the configuration of one of our Transformers to Marian's."""
    from transformers import MarianConfig

    config = model.config
    return MarianConfig(
        vocab_size=model.source_vocab_size,
        decoder_vocab_size=model.target_vocab_size,
        d_model=config.d_model,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.decoder_d_ff or config.d_ff,
        activation_function=ACTIVATIONS[config.activation],
        max_position_embeddings=max(config.max_source_length, config.max_target_length),
        scale_embedding=config.scale_embeddings,
        share_encoder_decoder_embeddings=config.tied_embeddings == "all",
        tie_word_embeddings=config.tied_embeddings != "none",
        pad_token_id=special.pad,
        bos_token_id=special.bos,
        eos_token_id=special.eos,
        decoder_start_token_id=special.bos,
        forced_eos_token_id=None,
    )


def _pairs(converted: Any, model: Any) -> Iterator[tuple[Any, Any]]:
    """Pair Marian's parameters with ours, by the names that the importer knows."""
    from edgeformer.importers.hugging_face.families.bart_network import NAMES
    from edgeformer.importers.layout import modules

    encoder, decoder = converted.get_encoder(), converted.get_decoder()
    yield encoder.embed_tokens.weight, model.source_embedding.tokens.weight
    yield decoder.embed_tokens.weight, model.target_embedding.tokens.weight
    yield encoder.embed_positions.weight, model.source_embedding.positions
    yield decoder.embed_positions.weight, model.target_embedding.positions
    yield converted.lm_head.weight, model.projection.weight
    if model.projection.bias is not None:
        yield converted.final_logits_bias[0], model.projection.bias
    section = {"family": "transformer", **msgspec.to_builtins(model.config)}
    for module in modules(section, NAMES):
        target, ours = converted.get_submodule(f"model.{module.theirs}"), model.get_submodule(module.ours)
        yield target.weight, ours.weight
        yield target.bias, ours.bias if module.has_bias else 0 * target.bias
