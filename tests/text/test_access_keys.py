"""Access keys of menus and buttons are neither read by the model nor in its translation."""

from __future__ import annotations

import re

import pytest

from edgeformer_text.block import Block
from edgeformer_text.documents.messages import message_parts
from tests.text.test_gettext import translated


def read(message: str, flags: tuple[str, ...] = ()) -> str:
    """What a model reads of a message."""
    return "".join(part if isinstance(part, str) else part.text for part in message_parts(message, flags))


@pytest.mark.parametrize(
    ("message", "plain"),
    [
        ("_File", "File"),
        ("&File", "File"),
        ("E_xit", "Exit"),
        ("E&xit", "Exit"),
        ("Pa&ste _all_", "Paste _all_"),
        ("Вы&ход", "Выход"),
        ("Save _As...", "Save As..."),
        ("Open %s in {user_name}_s _File", "Open %s in {user_name}_s _File"),
        ("Open {user_name} in _Window", "Open {user_name} in Window"),
        ("Drag && &Drop", "Drag && Drop"),
        ("<b>_Bold</b> text", "Bold text"),
        ('<a href="_blank?a&b">&Open</a>', "Open"),
    ],
)
def test_the_model_reads_no_mark(message: str, plain: str) -> None:
    assert re.sub("<[^>]*>", "", read(message)) == plain


@pytest.mark.parametrize(
    "message",
    [
        *("R&D", "AT&T", "Q&A", "x&y", "a & b", "Fish & Chips", "&", "_", "&1", "_ x", "&amp;", "a &amp; b", "&File;"),
        *("file_name", "Invalid file_name", "__init__", "snake_case_name", "$MY_VAR", "_A _B", "&A &B", "_A &B"),
        *("https://x.org/a_b?c=d&e=f", "john_doe@x.org", "%(file_name)s", "{file_name}", "a=1&b=2", "MAX_SIZE"),
    ],
)
def test_other_marks_are_text(message: str) -> None:
    parts = message_parts(message, ())
    assert "".join(part if isinstance(part, str) else "".join(part.raw) for part in parts) == message


def test_directives_are_no_marks() -> None:
    message = "Values: %d & %d, 100%% of_all"
    for part in message_parts(message, ("c-format",)):
        assert isinstance(part, Block)
        assert part.text == "Values: %d & %d, 100% of_all"


def test_a_catalog_has_no_access_keys() -> None:
    content = (
        'msgid "a red _car"\nmsgstr ""\n\nmsgid "the &dog"\nmsgid_plural "the d&ogs"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    )
    found = translated(content)
    assert re.findall(r'msgstr(?:\[\d\])? "(.*)"', found) == ["une voiture rouge", "le chien", "le dogs"]
