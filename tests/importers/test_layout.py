"""What weights and files belong together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeformer.errors import ImporterError
from edgeformer.importers.layout import tied_tables
from edgeformer.importers.marian.files import find_files, has_options
from edgeformer.importers.registry import ImportOverrides


@pytest.mark.parametrize(
    ("equal", "tying", "names"),
    [
        ((0, 0, 0), "all", {"target_embedding"}),
        ((0, 0, 1), "inputs", {"target_embedding", "projection"}),
        ((0, 1, 1), "decoder", {"target_embedding", "source_embedding"}),
        ((0, 1, 2), "none", {"target_embedding", "source_embedding", "projection"}),
    ],
)
def test_tables_with_equal_values_are_one(equal: tuple[int, int, int], tying: str, names: set[str]) -> None:
    source, target, output = (np.full((4, 3), value, np.float32) for value in equal)
    found, weights = tied_tables(source, target, output)
    assert (found, {name.partition(".")[0] for name in weights}) == (tying, names)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["srcvocab.enfr.spm", "trgvocab.enfr.spm"], ["srcvocab.enfr.spm", "trgvocab.enfr.spm"]),
        (["a.tgt.vocab.yml", "b.src.vocab.yml"], ["b.src.vocab.yml", "a.tgt.vocab.yml"]),
        (["a.vocab.yml", "src.vocab.yml"], ["src.vocab.yml", "a.vocab.yml"]),
        (["target-vocab.json", "vocab.json"], ["vocab.json", "target-vocab.json"]),
        (["a.vocab.yml", "b.vocab.yml"], None),
    ],
)
def test_the_name_of_one_vocabulary_tells_the_side_of_both(
    names: list[str], expected: list[str] | None, tmp_path: Path
) -> None:
    for name in names:
        (tmp_path / name).touch()
    model = tmp_path / "model.npz"
    if expected is None:
        with pytest.raises(ImporterError, match=r"name them in decoder\.yml"):
            find_files(model, has_options, ".npz", ImportOverrides())
    else:
        found = find_files(model, has_options, ".npz", ImportOverrides()).text.vocabularies
        assert [file.name for file in found] == expected
