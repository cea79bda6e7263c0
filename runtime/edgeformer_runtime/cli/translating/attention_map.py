"""Attention as a picture: source tokens along the top, target tokens down the side, a darker cell for more weight."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.errors import ConfigError, missing_package
from edgeformer_runtime.files import write_atomically

try:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise ConfigError(missing_package("A picture of attention", "matplotlib", "plot")) from error

_CELL, _LONGEST_SIDE = 0.3, 16.0  # inches
_DOTS_PER_INCH = 150
_LONGEST_LABEL = 24  # characters

# The characters that byte-level vocabularies write for the 256 bytes: printable Latin-1 stands for itself, and the
# others follow from U+0100 on (Radford et al. 2019).
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = sorted(set(range(0x100)) - set(_PRINTABLE))
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}


def draw_attention(attention: Attention, out: Path | IO[bytes]) -> None:
    """Draw a heat map as PNG.

    Cells are squares of 0.3 inch, smaller where a side would exceed 16 inches. Characters that matplotlib's font lacks
    become boxes; name a font that has them as ``font.family`` in a matplotlibrc file.

    Args:
        attention: weights of at least one source and one target token.
        out: a file, which is written atomically, or a binary stream.
    """
    targets, sources = attention.weights.shape
    cell = min(_CELL, _LONGEST_SIDE / max(targets, sources))
    width, height = sources * cell, targets * cell
    font: dict[str, Any] = {"fontsize": min(9.0, 0.6 * 72 * cell), "parse_math": False, "usetex": False}
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))  # the labels are outside, and the tight box below takes them in
    cells = axes.pcolormesh(
        attention.weights,
        cmap=LinearSegmentedColormap.from_list("white to blue", ("white", "#08306b")),
        vmin=0,
        edgecolors="0.9",
        linewidth=0.5,
    )
    axes.invert_yaxis()
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    slanted: dict[str, Any] = {"rotation": 60, "ha": "left", "rotation_mode": "anchor"}
    axes.set_xticks([n + 0.5 for n in range(sources)], readable(attention.source_tokens), **font, **slanted)
    axes.set_yticks([n + 0.5 for n in range(targets)], readable(attention.target_tokens), **font)
    bar = figure.add_axes((1 + 0.15 / width, 0, 0.12 / width, min(1.0, 1.5 / height)))
    figure.colorbar(cells, cax=bar).ax.tick_params(labelsize=7)
    picture = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of glyphs and scripts that the font lacks
        figure.savefig(picture, format="png", dpi=_DOTS_PER_INCH, bbox_inches="tight")
    if isinstance(out, Path):
        write_atomically(out, picture.getvalue())
    else:
        out.write(picture.getvalue())


def readable(tokens: Sequence[str]) -> list[str]:
    """Tokens of one sentence for people: bytes as text, ``▁`` for a space, escapes for what cannot be printed.

    Tokens count as bytes if all their characters stand for one and they make up UTF-8 text, whose end may be cut off.
    Part of a character is shown as ``\\xc3``.
    """
    texts = list(tokens)
    if set().union(*tokens) <= _BYTE_OF.keys():
        pieces = [bytes(_BYTE_OF[character] for character in token) for token in tokens]
        if _is_utf8_but_for_its_end(b"".join(pieces)):
            texts = [piece.decode("utf-8", "backslashreplace") for piece in pieces]
    return [_label(text) for text in texts]


def _is_utf8_but_for_its_end(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def _label(text: str) -> str:
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text.replace(" ", "▁")
    )
    return shown if len(shown) <= _LONGEST_LABEL else shown[: _LONGEST_LABEL - 1] + "…"
