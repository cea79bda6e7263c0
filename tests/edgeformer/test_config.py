"""Recipes with values that no training can use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeformer.config import load_recipe, recipe_from_tree
from edgeformer.errors import ConfigError


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.adam_betas=[2.0, 3.0]", r"`train\.adam_betas\[0\]` must be below 1\.$"),
        ("train.adam_betas=[0.9, nan]", r"`train\.adam_betas\[1\]` must be at least 0\.$"),
        ("train.adam_betas=[0.9]", r"`train\.adam_betas` must have 2 values, but has 1\.$"),
        ("train.adam_eps=0", r"`train\.adam_eps` must be greater than 0\.$"),
        ("train.learning_rate=inf", r"`train\.learning_rate` must be at most 9007199254740992\.$"),
        ("train.learning_rate=nan", r"`train\.learning_rate` must be greater than 0"),
        ("train.max_minutes=inf", r"`train\.max_minutes` must be at most"),
        ("train.seed=9223372036854775808", r"`train\.seed` must be at most"),
        ("train.seed=-1", r"`train\.seed` must be at least 0"),
        ('model.preset=["tiny"]', r"`model\.preset` must be one of tiny, edge, base, .*, but is `\['tiny'\]`"),
        ('model.preset={name = "tiny"}', r"`model\.preset` must be one of"),
        ("model.preset=tiniest", r"`model\.preset` must be one of tiny, edge, base, .*, but is `tiniest`"),
        ('model.family=["transformer"]', r"`model\.family` must be one of"),
        ("max_steps=3", r"the file has no key `max_steps`\. Did you mean `train\.max_steps`\?"),
        ("train.vocabsize=3", r"`train` has no key `vocabsize`\. Did you mean `tokenizer\.vocab_size`\?"),
        ("data.source_language=en", r"`data` has no key `source_language`\. Did you mean `source_language`, above all"),
        ("train.qqq=3", r"`train` has no key `qqq`\.$"),
        ("model.head=3", r"has no field `head`\. Did you mean `model\.heads`\?"),
        ("model.qqq=3", r"has no field `qqq`\.$"),
        ("tokenizer.shared=false", r'`model\.tied_embeddings` = "all" needs `tokenizer\.shared` = true'),
    ],
)
def test_a_wrong_value_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("dates-en-fr", [override])


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"train": {"max_steps": "many"}}, "Recipe `r`: `train.max_steps` must be a whole number, but is a string."),
        ({"train": {"schedule": "cosine"}}, "`train.schedule` must be one of inverse_sqrt, noam, but is 'cosine'."),
        ({"train": 3}, "`train` must be a table, but is a whole number."),
        ({"tokenizer": {"shared": "yes"}}, "`tokenizer.shared` must be true or false, but is a string."),
        ({"data": {"train": [1]}}, "`data.train[0]` must be a string, but is a whole number."),
        ({"trane": {}}, "the file has no key `trane`. Did you mean `train`?"),
        ({"model": {"family": "transformer", "d_model": 0}}, "`model.d_model` must be at least 1."),
    ],
)
def test_problems_are_worded(sections: dict[str, Any], problem: str) -> None:
    tree = {"model": {"family": "transformer"}, "data": {"corpus": "dates-en-fr"}, **sections}
    with pytest.raises(ConfigError) as caught:
        recipe_from_tree(tree, "r")
    assert str(caught.value).endswith(problem)


def test_settings_that_do_not_go_together_are_listed_at_once() -> None:
    with pytest.raises(ConfigError, match=r"tied_embeddings.*; .*either `data\.corpus` or `data\.train`"):
        load_recipe("dates-en-fr", ["tokenizer.shared=false", "data.corpus=[]"])


def test_two_vocabularies_without_a_common_table() -> None:
    overrides = ["tokenizer.shared=false", "model.tied_embeddings=decoder"]
    assert not load_recipe("dates-en-fr", overrides).tokenizer.shared


@pytest.mark.parametrize(("name", "key"), [("recipe.toml", "a = "), ("recipe.json", "")])
def test_a_deeply_nested_file(tmp_path: Path, name: str, key: str) -> None:
    path = tmp_path / name
    path.write_text(key + "[" * 100_000 + "]" * 100_000)
    with pytest.raises(ConfigError, match="cannot be parsed"):
        load_recipe(str(path))
