"""The spaces of French punctuation."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.make.filters import french_spaces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Où est-il ?", "Où est-il\u202f?"),
        ("Où est-il?", "Où est-il\u202f?"),
        ("Quoi\u00a0?!", "Quoi\u202f?!"),
        ("Attention: danger", "Attention\u00a0: danger"),
        ("Il dit: «Non» !", "Il dit\u00a0: «\u00a0Non\u00a0»\u202f!"),
        ("Oui ; non", "Oui\u202f; non"),
        ("À 7:30", "À 7:30"),
        ("https://a.org/?q=1", "https://a.org/?q=1"),
        ("Comment ça ? », dit-il.", "Comment ça\u202f?\u00a0», dit-il."),
        ("?", "?"),
        ("1:»", "1\u00a0:\u00a0»"),
        ("Ah ! Oh !", "Ah\u202f! Oh\u202f!"),
    ],
)
def test_spaces(text: str, expected: str) -> None:
    assert french_spaces(text) == expected


@given(st.text("ab ?!;:«».,/\u202f\u00a0é1", max_size=30))
def test_only_spaces_change_and_twice_is_once(text: str) -> None:
    once = french_spaces(text)
    assert re.sub(r"\s", "", once) == re.sub(r"\s", "", text)
    assert french_spaces(once) == once
