"""The command ``translate``: text from arguments, a file or standard input, without torch."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.output import atomic_text, console, one_line, refuse_input
from edgeformer_runtime.errors import DataError, OptionError

if TYPE_CHECKING:
    from edgeformer_runtime.attention import Attention
    from edgeformer_runtime.translator import Translation


def _png(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value and Path(value).suffix.lower() != ".png":
        raise click.BadParameter(f"`{value}` does not end in .png; put BUNDLE and TEXT before --attention.")
    return value


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("text", nargs=-1)
@click.option("--input", "input_file", type=click.Path(path_type=Path), help="UTF-8 text, plain or gzip, line by line.")
@click.option(
    "--output", "output_file", type=click.Path(path_type=Path), help="File to write; appears when all is done."
)
@options.beam
@click.option(
    "--nbest", type=click.IntRange(1), default=1, show_default=True, help="Translations per sentence, best first."
)
@options.length_penalty
@click.option("--min-length", type=click.IntRange(0), default=0, help="Tokens before a translation may end.")
@click.option("--max-length", type=click.IntRange(1), help="Largest number of tokens; at most the model's limit.")
@click.option(
    "--no-repeat-ngram", type=click.IntRange(0), default=0, help="Forbid repeating n-grams of this size; 0 allows all."
)
@click.option("--repetition-penalty", type=float, default=1.0, help="Above 1, makes tokens used before less likely.")
@options.truncate
@options.batch_tokens
@options.device
@options.worker_threads
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Batches translated at the same time, with one copy of the weights; for files of many sentences.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per line: source, text, score, tokens of each hypothesis."
)
@click.option(
    "--attention",
    is_flag=False,
    flag_value="",
    metavar="[FILE.png]",
    callback=_png,
    help="Show which source tokens each target token looks at: a picture per translation, attention.png unless named; "
    "with --json, numbers in each object, and pictures only if FILE.png is given. Put it after TEXT.",
)
def translate(
    bundle: Path,
    text: tuple[str, ...],
    input_file: Path | None,
    output_file: Path | None,
    beam: int | None,
    nbest: int,
    length_penalty: float | None,
    min_length: int,
    max_length: int | None,
    no_repeat_ngram: int,
    repetition_penalty: float,
    truncate: bool,
    batch_tokens: int,
    device: str,
    threads: int,
    workers: int,
    as_json: bool,
    attention: str | None,
) -> None:
    """Translate TEXT, the lines of --input, or standard input with a BUNDLE.

    Every input line gives one output line, an empty one an empty one; with --nbest, up to that many lines of score,
    tab and text, followed by an empty line.
    """
    if text and input_file is not None:
        raise click.UsageError("Give TEXT or --input, not both.")
    if output_file is not None:
        refuse_input(output_file, input_file)
    pictures = None
    if attention or (attention is not None and not as_json):
        from edgeformer_runtime.cli.pictures import Pictures  # which needs matplotlib

        pictures = Pictures(Path(attention or "attention.png"), input_file, output_file)
    from edgeformer_runtime.translator import Translator

    translator = Translator(bundle, device=device, threads=threads, workers=workers, truncate=truncate)
    changes: dict[str, Any] = {
        "n_best": nbest,
        "min_length": min_length,
        "max_length": max_length,
        "no_repeat_ngram_size": no_repeat_ngram,
        "repetition_penalty": repetition_penalty,
        "max_batch_tokens": batch_tokens,
        "return_scores": as_json or nbest > 1,
    }
    if beam is not None:
        changes["beam_size"] = beam
    if length_penalty is not None:
        changes["length_penalty"] = length_penalty
    search = translator.options(**changes)
    if nbest > search.beam_size:
        raise OptionError(f"`--nbest` must be at most `--beam` ({search.beam_size}), but is {nbest}.")
    search.verify()  # even if there is no line to translate
    if attention is not None:
        translator.session.open_attention()  # a bundle without attention is an error before any work
    with pictures or nullcontext(), _lines(text, input_file) as lines, _writer(output_file) as write:
        # Someone who types sees each translation at once; a file is translated in large blocks.
        chunk = 1 if input_file is None and not text and sys.stdin.isatty() else 512
        sources: list[str] = []
        line = 0
        stream = translator.translate_stream(_remember(lines, sources), chunk=chunk, **changes)
        while block := list(islice(stream, chunk)):
            maps = (
                repeat(None)
                if attention is None
                else translator.attention(sources, block, max_batch_tokens=batch_tokens)
            )
            for source, translation, weights in zip(sources, block, maps, strict=False):
                line += 1
                if translation.cut:
                    console(stderr=True).print(f"Text {line} was cut: its last {translation.cut} tokens are left out.")
                write(_format(source, translation, nbest, as_json, weights))
                if pictures and weights:
                    pictures.add(weights)
            sources.clear()


def _format(source: str, translation: Translation, nbest: int, as_json: bool, attention: Attention | None) -> str:
    if as_json:
        record: dict[str, Any] = {"source": source, "hypotheses": translation.hypotheses}
        if translation.cut:
            record["cut"] = translation.cut
        if attention is not None:
            record["attention"] = {
                "source_tokens": attention.source_tokens,
                "target_tokens": attention.target_tokens,
                "weights": attention.weights.astype(float).round(6).tolist(),
                "alignment": attention.alignment,
            }
        return msgspec.json.encode(record).decode() + "\n"
    if nbest == 1:
        return one_line(translation.text) + "\n"
    return "".join(f"{h.score:.4f}\t{one_line(h.text)}\n" for h in translation.hypotheses) + "\n"


def _remember(lines: Iterator[str], sources: list[str]) -> Iterator[str]:
    for line in lines:
        sources.append(line)
        yield line


@contextmanager
def _lines(text: tuple[str, ...], input_file: Path | None) -> Iterator[Iterator[str]]:
    """Lines of the chosen source, without their line feeds."""
    if text:
        yield iter(text)
    elif input_file is not None:
        packed = input_file.suffix.lower() == ".gz"
        with gzip.open(input_file) if packed else input_file.open("rb") as stream:
            yield _decoded(stream, str(input_file))
    else:
        yield _decoded(sys.stdin.buffer, "standard input")


def _decoded(stream: Iterable[bytes], name: str) -> Iterator[str]:
    number = 0
    try:
        for number, line in enumerate(stream, 1):
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(
            f"Line {number} of {name} is not UTF-8 ({error.reason}); convert it, for example with iconv."
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"`{name}` is damaged: {error}. Fetch it again.") from None


@contextmanager
def _writer(output_file: Path | None) -> Iterator[Any]:
    """A function that writes text; a file takes its name only when the block ends well."""
    if output_file is None:
        stdout = sys.stdout.buffer

        def write(line: str) -> None:
            stdout.write(line.encode("utf-8"))  # as the input, whatever the locale says
            stdout.flush()

        yield write
        return
    with atomic_text(output_file) as stream:
        yield stream.write
