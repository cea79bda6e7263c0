"""How messages are worded."""

from __future__ import annotations

from typing import Any

import pytest

from edgeformer.config import recipe_from_tree
from edgeformer.errors import ConfigError


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
