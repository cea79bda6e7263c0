"""Pictures of attention, read back."""

from __future__ import annotations

import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from numpy.typing import NDArray

from edgeformer_runtime.attention import Attention
from edgeformer_runtime.cli.translating.attention_map import draw_attention, readable
from edgeformer_runtime.translator import Translator

INCH = 150  # dots
CELL = 45  # dots of a cell of 0.3 inch
DARK = [0x08, 0x30, 0x6B]


def attention(sources: int, targets: int) -> Attention:
    """A model that looks at the source token of the same place."""
    weights = np.full((targets, sources), 0.01, np.float32)
    np.fill_diagonal(weights, 1.0)
    return Attention(
        ("Ġdog",) * sources, ("Ġchien",) * targets, weights / weights.sum(1, keepdims=True), finished=False
    )


def drawn(of: Attention) -> NDArray[np.uint8]:
    """The picture's pixels, ``(height, width, 3)``."""
    stream = BytesIO()
    draw_attention(of, stream)
    assert stream.getvalue().startswith(b"\x89PNG\r\n\x1a\n")
    stream.seek(0)
    return np.asarray(image.imread(stream)[..., :3] * 255).round().astype(np.uint8)


def test_the_darkest_cells_are_where_the_model_looks() -> None:
    pixels = drawn(attention(4, 3))
    rows, columns = np.nonzero((pixels == DARK).all(-1))
    top, left = rows.min(), columns.min()
    for target in range(3):
        for source in range(4):
            center = pixels[top + CELL // 2 + target * CELL, left + CELL // 2 + source * CELL].tolist()
            assert (center == DARK) == (source == target), (source, target)


def test_no_weight_is_white() -> None:
    pixels = drawn(Attention(("a", "b"), ("c",), np.array([[0, 1]], np.float32), finished=False))
    rows, columns = np.nonzero((pixels == DARK).all(-1))
    middle, left = int(np.median(rows)), int(columns.min())
    assert pixels[middle, left + CELL // 2].tolist() == DARK
    assert pixels[middle, left - CELL // 2].tolist() == [255, 255, 255]


def test_the_size_grows_with_the_tokens_up_to_a_bound() -> None:
    shapes = {size: drawn(attention(*size)).shape for size in ((1, 1), (12, 8), (13, 8), (12, 9), (256, 256))}
    assert shapes[13, 8][1] - shapes[12, 8][1] == pytest.approx(CELL, abs=1)
    assert shapes[12, 9][0] - shapes[12, 8][0] == pytest.approx(CELL, abs=1)
    assert shapes[1, 1][0] < shapes[12, 8][0] < shapes[256, 256][0] < 18 * INCH
    assert shapes[1, 1][1] < shapes[12, 8][1] < shapes[256, 256][1] < 18 * INCH


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "map.png"
    path.write_bytes(b"old")
    draw_attention(attention(2, 2), path)
    stream = BytesIO()
    draw_attention(attention(2, 2), stream)
    assert path.read_bytes() == stream.getvalue()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "token",
    [
        "$",
        "$x^2$",
        "$\\frac$",
        "\\alpha_",
        "^_{",
        "%",
        "狗",
        "كلب",
        "हिन्दी",
        "😀",
        "\n",
        "\x00",
        "\ufffd",
        "",
        "x" * 300,
    ],
)
def test_any_token_can_be_drawn(token: str) -> None:
    """Text that matplotlib would read as a formula, or whose characters its font lacks; a warning would fail this."""
    plain = drawn(Attention(("a", "b"), ("c",), np.array([[0.5, 0.5]], np.float32), finished=False))
    pixels = drawn(Attention((token, "b"), (token,), np.array([[0.5, 0.5]], np.float32), finished=False))
    assert pixels.shape[1] < plain.shape[1] + 4 * INCH
    assert not np.array_equal(plain, pixels)


def test_warnings_are_as_before() -> None:
    before = list(warnings.filters)
    drawn(attention(2, 2))
    assert list(warnings.filters) == before


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["The", "Ġdog", "</s>"], ["The", "▁dog", "</s>"]),
        (["cafÃ©", "Ã", "©", "çĭĹ"], ["café", "\\xc3", "\\xa9", "狗"]),
        (["Ġca", "fÃ"], ["▁ca", "f\\xc3"]),  # cut off at the length limit
        ([" dog", " café", "\n"], ["▁dog", "▁café", "\\n"]),  # a word-level vocabulary
        (["▁hund", "ö"], ["▁hund", "ö"]),  # SentencePiece
        (["schö", "##n"], ["schö", "##n"]),  # characters that stand for bytes, but make no UTF-8
        (["x" * 25], ["x" * 23 + "…"]),
        ([], []),
    ],
)
def test_tokens_are_shown_as_text(tokens: list[str], expected: list[str]) -> None:
    assert readable(tokens) == expected


def test_labels_add_up_to_the_text(translator: Translator) -> None:
    text = "The old dog runs near the sea, 2 times."
    tokenizer = translator.source_tokenizer
    labels = readable(tokenizer.tokens(tokenizer.encode(text)))
    assert "".join(labels).replace("▁", " ").strip() == text
