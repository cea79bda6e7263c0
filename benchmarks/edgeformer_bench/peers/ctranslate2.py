"""CTranslate2, with the weights of a run. Requires the package ``ctranslate2``; only conversion requires torch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from edgeformer_bench.peers.base import Peer, PeerCall, PeerError, PeerSpec
from edgeformer_runtime.bundle.generation import Generation
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.bundle.text_format import TextFormat
from edgeformer_runtime.search.shortlist import Shortlist
from edgeformer_runtime.tokenizers import BOS_TOKEN, EOS_TOKEN, PAD_TOKEN, UNK_TOKEN, Tokenizer, special_tokens

if TYPE_CHECKING:
    from edgeformer.run.folder import Run

RULES_FILE = "rules.json"
"""File of what a converted model's folder has beside CTranslate2's own files."""
VOCABULARY_MAP = "vmap.txt"
"""File of a model's vocabulary map."""
BATCH_TOKENS = (1024, 4096)
"""Batch sizes to try when CTranslate2 forms batches itself, in source tokens with padding."""


def environments() -> list[dict[str, str]]:
    """List the kernels to try, as environment variables: each instruction set with each library of matrix products.

    CTranslate2 uses AVX-512 only on request, and MKL by default only on Intel processors; if the processor or the
    library does not support what is requested, the process refuses to start. What the environment of this process says
    already holds for all.
    """
    from edgeformer_runtime.check.machine import machine_summary

    opposite = "0" if "intel" in machine_summary().lower() else "1"
    others = {"CT2_FORCE_CPU_ISA": "AVX512", "CT2_USE_MKL": opposite}
    choices: list[list[dict[str, str]]] = [
        [{}] if name in os.environ else [{}, {name: value}] for name, value in others.items()
    ]
    return [{**instructions, **library} for instructions, library in product(*choices)]


class DecodingRules(msgspec.Struct, kw_only=True, frozen=True):
    """Rules of a model's translations, apart from its weights and vocabularies."""

    max_target_length: int
    """Maximum number of decoding steps."""
    text: TextFormat
    """Names of special tokens, and what is around the tokens of a text."""
    languages: tuple[str, str]
    """Codes of the languages to translate from and to."""
    generation: Generation
    """Decoding defaults of the model."""
    tokenizers: tuple[str, str]
    """Names of the tokenizer files of both sides."""


class ConvertedModel:
    """Tokenizers and rules in a folder of a converted model.

    Args:
        folder: where :func:`save_rules` wrote them.
    """

    def __init__(self, folder: Path) -> None:
        self.rules = msgspec.json.decode((folder / RULES_FILE).read_bytes(), type=DecodingRules)
        text, languages = self.rules.text, self.rules.languages
        source, target = (Tokenizer.from_file(folder / name, text) for name in self.rules.tokenizers)
        self.source_tokenizer, self.target_tokenizer = source.for_sources(*languages), target
        prefix = self.target_tokenizer.target_prefix(*languages)
        self.special = special_tokens(self.source_tokenizer, self.target_tokenizer, prefix)

    def limits(self, sources: Sequence[Sequence[int]]) -> list[int]:
        """Return the maximum number of output tokens for each source, end token included, without what every target
        begins with."""
        factor, limit = self.rules.generation.max_len_a, self.rules.max_target_length - len(self.special.prefix)
        return [min(limit, max(1, int(factor * len(source)))) if factor else limit for source in sources]


def save_rules(run: Run, max_target_length: int, folder: Path) -> None:
    """Write a run's tokenizers and rules into the folder of a converted model.

    Raises:
        PeerError: lengths are counted as in no other engine.
    """
    generation = run.info.generation
    if not generation.length_includes_end:
        raise PeerError("Other engines count the end token in lengths; `length_includes_end` must not be false.")
    files = run.source_tokenizer_path, run.target_tokenizer_path
    rules = DecodingRules(
        max_target_length=max_target_length,
        text=run.info.text,
        languages=run.languages,
        generation=generation,
        tokenizers=(files[0].name, files[1].name),
    )
    (folder / RULES_FILE).write_bytes(msgspec.json.encode(rules))
    for file in files:
        shutil.copyfile(file, folder / file.name)


def side_names(tokenizer: Tokenizer) -> list[str]:
    """Make a unique name for each id of a tokenizer's vocabulary; see :func:`token_names`."""
    return token_names(tokenizer.vocab_size, special_tokens(tokenizer, tokenizer, ()))


def token_names(vocab_size: int, special: SpecialTokens) -> list[str]:
    """Make a unique name for each id, for engines that read and write names; the tokenizer's names may repeat."""
    names = {special.pad: PAD_TOKEN, special.bos: BOS_TOKEN, special.eos: EOS_TOKEN}
    if special.unk is not None:
        names[special.unk] = UNK_TOKEN
    return [names.get(index, f"t{index}") for index in range(vocab_size)]


class CTranslate2Peer(Peer):
    """A converted model.

    Args:
        folder: output of :func:`~edgeformer_bench.peers.ctranslate2_model.convert_run`.
        compute_type: for example ``int8`` or ``float32``.
        threads: CPU threads.
        device: ``cpu`` or ``cuda``.
        parallel_batches: translate one batch per thread in parallel when CTranslate2 forms batches itself.
        batch_tokens: size of these batches, in source tokens with padding.
        use_vmap: restrict searches by the vocabulary map that :func:`write_vocabulary_map` wrote.
    """

    def __init__(
        self,
        folder: Path,
        compute_type: str,
        threads: int,
        device: str = "cpu",
        parallel_batches: bool = False,
        batch_tokens: int = 4096,
        use_vmap: bool = False,
    ) -> None:
        import ctranslate2

        self.version = f"ctranslate2 {ctranslate2.__version__}"
        workers = threads if parallel_batches else 1
        self._translator = ctranslate2.Translator(
            str(folder),
            device=device,
            compute_type=compute_type,
            inter_threads=workers,
            intra_threads=threads // workers,
        )
        self._batch_tokens, self._use_vmap = batch_tokens, use_vmap
        self._model = ConvertedModel(folder)
        source, target = self._model.source_tokenizer, self._model.target_tokenizer
        self._source_names, self._target_names = side_names(source), side_names(target)
        self._ids = {name: index for index, name in enumerate(self._target_names)}

    def prepare(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> PeerCall:
        """See :meth:`Peer.prepare`; CTranslate2 reads and writes the names of tokens."""
        return self._call(sources, length, beam_size=beam_size)

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """See :meth:`Peer.translate_texts`; CTranslate2 sorts texts by length and forms batches."""
        sources = self._model.source_tokenizer.encode_batch(texts, special_tokens=True)
        call = self._call(sources, beam_size=beam_size, max_batch_size=self._batch_tokens, batch_type="tokens")
        return [self._model.target_tokenizer.decode(ids) for ids in call.ids(call.run())]

    def _call(self, sources: Sequence[Sequence[int]], length: int | None = None, **options: object) -> PeerCall:
        """Prepare a call; CTranslate2 has one limit for all sentences, so those with a lower one are cut."""
        model = self._model
        limits = [length] * len(sources) if length else model.limits(sources)
        prefix = [self._target_names[index] for index in model.special.prefix]
        run = partial(
            self._translator.translate_batch,
            [[self._source_names[index] for index in source] for source in sources],
            [prefix] * len(sources) if prefix else None,
            max_input_length=0,
            min_decoding_length=len(prefix) + length if length else 0,
            max_decoding_length=len(prefix) + max(limits),
            length_penalty=model.rules.generation.length_penalty,
            use_vmap=self._use_vmap,
            suppress_sequences=[
                [self._target_names[index]] for index in (*model.special.suppress, *model.special.forbid)
            ],
            **options,
        )

        def ids(results: Any) -> list[list[int]]:
            return [
                [self._ids[name] for name in result.hypotheses[0][len(prefix) : len(prefix) + limit]]
                for result, limit in zip(results, limits, strict=True)
            ]

        return PeerCall(run, ids)


def write_vocabulary_map(shortlist: Shortlist, folder: Path) -> None:
    """Write a shortlist as the vocabulary map of a converted model: the tokens of each source token, and those of every
    sentence.

    Args:
        shortlist: the lists of a bundle.
        folder: output of :func:`~edgeformer_bench.peers.ctranslate2_model.convert_run`.
    """
    model = ConvertedModel(folder)
    sources, targets = side_names(model.source_tokenizer), side_names(model.target_tokenizer)
    starts = [0, *shortlist.ends[:-1].tolist()]
    lists = {
        name: shortlist.tokens[start:end]
        for name, start, end in zip(sources, starts, shortlist.ends.tolist(), strict=True)
        if end > start
    }
    with (folder / VOCABULARY_MAP).open("w", encoding="utf-8", newline="\n") as stream:
        for name, tokens in {"": shortlist.frequent[: shortlist.always], **lists}.items():
            stream.write(f"{name}\t{' '.join(targets[token] for token in tokens)}\n")


def open_peer(spec: PeerSpec) -> CTranslate2Peer:
    """Open a converted model; settings are the arguments of :class:`CTranslate2Peer`."""
    return CTranslate2Peer(Path(spec.model), threads=spec.threads, device=spec.device, **spec.settings)
