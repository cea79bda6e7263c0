"""How much of a property is tried: a part in which every value occurs with the fast tests, all with the slow ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeVar

import pytest
from hypothesis import settings

Test = TypeVar("Test", bound=Callable[..., Any])
are_slow_tests_run = False
"""Whether ``--slow`` is given; set by ``tests/conftest.py`` before tests are imported."""


def examples(few: int, many: int, **changes: Any) -> Callable[[Test], Test]:
    """Try a few examples of a property, or many with the slow tests."""
    chosen = settings(max_examples=many if are_slow_tests_run else few, deadline=None, **changes)

    def decorate(test: Test) -> Test:
        decorated: Test = chosen(test)
        return pytest.mark.slow(decorated) if are_slow_tests_run else decorated

    return decorate


def cases(few: int, many: int) -> int:
    """Number of random cases of a property: a few, or many with the slow tests; ``CASES`` overrides both."""
    return int(os.environ.get("CASES", many if are_slow_tests_run else few))


def slow_unless(chosen: bool) -> list[pytest.MarkDecorator]:
    """Marks of the random cases of a parameter, which are slow with the slow tests, and unless it is chosen."""
    return [pytest.mark.slow] if are_slow_tests_run or not chosen else []


def combinations(**values: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrize a test over all combinations of values; those beyond a few in which every value occurs are slow.

    Args:
        values: the values of each argument of the test.
    """
    longest = max(map(len, values.values()))
    few = {tuple(index % len(each) for each in values.values()) for index in range(longest)}
    cases = [
        pytest.param(
            *(each[index] for each, index in zip(values.values(), indices, strict=True)),
            marks=[] if indices in few else [pytest.mark.slow],
        )
        for indices in product(*(range(len(each)) for each in values.values()))
    ]
    return pytest.mark.parametrize(list(values), cases)
