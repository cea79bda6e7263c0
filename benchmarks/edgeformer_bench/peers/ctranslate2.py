"""CTranslate2, with the weights of a run. Needs the package ``ctranslate2``; only conversion needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgeformer_bench.peers.base import Spec
from edgeformer_runtime.bundle.manifest import SpecialTokens
from edgeformer_runtime.tokenizer import BOS_TOKEN, EOS_TOKEN, PAD_TOKEN, UNK_TOKEN, Tokenizer

START, EOS, UNKNOWN, PAD = BOS_TOKEN, EOS_TOKEN, UNK_TOKEN, PAD_TOKEN
SOURCE_TOKENIZER, TARGET_TOKENIZER = "source.tokenizer.json", "target.tokenizer.json"
LIMIT_FILE = "max_target_length.txt"
"""Its own limit is 256 tokens, whatever the model's is; a model with fewer positions then fails."""
BATCH_TOKENS = (1024, 4096)
"""Sizes of batches to try when it makes them by itself, in source tokens with padding."""


def environments() -> list[dict[str, str]]:
    """Kernels to try, as environment variables. It uses AVX-512 only when told to, and MKL by itself only on Intel's
    processors; a process whose processor or library lacks what is asked for refuses to start."""
    from edgeformer_bench.latency import machine

    other = "0" if "intel" in machine().lower() else "1"
    return [{}, {"CT2_FORCE_CPU_ISA": "AVX512"}, {"CT2_USE_MKL": other}]


def token_names(vocab_size: int, special: SpecialTokens) -> list[str]:
    """A name for each id; CTranslate2 knows tokens by name. Those of the tokenizer are not used: all must differ."""
    names = {special.pad: PAD, special.bos: START, special.eos: EOS}
    if special.unk is not None:
        names[special.unk] = UNKNOWN
    return [names.get(index, f"t{index}") for index in range(vocab_size)]


class CTranslate2Peer:
    """A converted model.

    Args:
        folder: what :func:`convert` has written.
        compute_type: such as ``int8`` or ``float32``.
        threads: CPU threads.
        device: ``cpu`` or ``cuda``.
        parallel_batches: batches translated at once, with one of the threads each, where it makes them by itself.
        batch_tokens: size of those batches.
    """

    def __init__(
        self,
        folder: Path,
        compute_type: str,
        threads: int,
        device: str = "cpu",
        parallel_batches: bool = False,
        batch_tokens: int = 4096,
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
        self._source = Tokenizer.from_file(folder / SOURCE_TOKENIZER)
        self._target = Tokenizer.from_file(folder / TARGET_TOKENIZER)
        self._batch_tokens = batch_tokens
        self._limit = int((folder / LIMIT_FILE).read_text(encoding="utf-8"))
        special = SpecialTokens()
        self._names = token_names(self._source.vocab_size, special)
        self._ids = {name: index for index, name in enumerate(token_names(self._target.vocab_size, special))}

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, length: int | None) -> list[list[int]]:
        """See :meth:`Peer.translate`."""
        limits = {"min_decoding_length": length or 1, "max_decoding_length": length or self._limit}
        return self._translate(sources, beam_size=beam_size, **limits)

    def translate_texts(self, texts: Sequence[str], *, beam_size: int) -> list[str]:
        """See :meth:`TextPeer.translate_texts`; it sorts them by length and makes batches."""
        sources = self._source.encode_batch(texts, end_token=True)
        batches = {"max_batch_size": self._batch_tokens, "batch_type": "tokens"}
        output = self._translate(sources, beam_size=beam_size, max_decoding_length=self._limit, **batches)
        return [self._target.decode(ids) for ids in output]

    def _translate(self, sources: Sequence[Sequence[int]], **options: object) -> list[list[int]]:
        tokens = [[self._names[index] for index in source] for source in sources]
        results = self._translator.translate_batch(tokens, max_input_length=0, **options)
        return [[self._ids[name] for name in result.hypotheses[0]] for result in results]


def open_peer(spec: Spec) -> CTranslate2Peer:
    """Open a converted model; settings are the arguments of :class:`CTranslate2Peer`."""
    return CTranslate2Peer(Path(spec.model), threads=spec.threads, device=spec.device, **spec.settings)


def convert(run: Path, out: Path, precision: str) -> None:
    """Convert a run; ``precision`` is ``float32`` or ``int8``.

    Raises:
        PeerError: CTranslate2 has no such model.
    """
    import msgspec

    from edgeformer.train.run import Run
    from edgeformer_bench.peers.ctranslate2_model import Quantization, convert_run

    convert_run(Run.open(run), out, msgspec.convert(precision, Quantization))
