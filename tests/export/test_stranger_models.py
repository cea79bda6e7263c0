"""Models from outside the package, through every precision: exported, compared with PyTorch and translated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from edgeformer import families
from edgeformer.data.vocabulary import train_tokenizers
from edgeformer.families import Family
from edgeformer.run.folder import Run
from edgeformer.run.info import RunInfo
from edgeformer.run.weights import save_weights
from edgeformer_export.export import export_run
from edgeformer_export.model_graphs import ModelGraphs
from edgeformer_runtime.check.golden import check_golden
from edgeformer_runtime.translator import Translator
from tests.factory import PAIRS, small_recipe, teach
from tests.store import CPU_PRECISIONS
from tests.strangers import FAMILIES

TEXTS = ["The old dog runs 2 times near the sea.", "river", "The small machine sings 14 times near the house."]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_strangers_model_works_in_every_precision(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_every_precision(FAMILIES[name], tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a library that takes seconds to import, and is imported here only
def test_a_wrapped_model_of_hugging_face_works_in_every_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from tests.hugging_face import BART

    require_every_precision(BART, tmp_path, monkeypatch)


def require_every_precision(family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "REGISTERED", {family.name: family})
    recipe = small_recipe(section={"family": family.name})
    run = Run.create(
        tmp_path / "run",
        recipe,
        *train_tokenizers(PAIRS, recipe.tokenizer),
        sample=PAIRS,
        info=RunInfo(status="finished"),
    )
    torch.manual_seed(0)
    model = run.build_model()
    teach(model, run, steps=150, seed=0)
    save_weights(model, run.model_path)
    model_graphs = ModelGraphs(run)
    for precision in CPU_PRECISIONS:
        bundle = tmp_path / precision
        report = export_run(run, bundle, precision=precision, model_graphs=model_graphs, force=True)
        translator = Translator.open(bundle, threads=1)
        assert check_golden(translator).problems == ()
        if precision == "fp32":
            assert report.parity.problems == []
        for beam_size in (1, 3):
            together = translator.translate(TEXTS, beam_size=beam_size)
            alone = [translator.translate([text], beam_size=beam_size)[0] for text in TEXTS]
            assert [one.best.ids for one in together] == [one.best.ids for one in alone]
        assert any(translation.best.finished for translation in together)
