"""Fields of Word documents, such as page numbers and links: three field characters among the runs of paragraphs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from edgeformer_text.documents.ranges import own_elements

if TYPE_CHECKING:
    from lxml.etree import _Element

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
"""Namespace of the elements."""
_TRANSLATED = frozenset(("FORMTEXT", "HYPERLINK", "QUOTE", "TOC"))
"""Fields whose result is text that was written, not computed."""


@dataclass(frozen=True)
class Field:
    """A field whose field characters are runs of the same element."""

    begin: _Element
    separate: _Element | None
    """What its result follows; ``None`` if it has none."""
    end: _Element
    is_computed: bool
    """Whether Word computes its result."""


@dataclass(frozen=True)
class Fields:
    """The fields of a paragraph."""

    whole: Mapping[_Element, Field]
    """Those whose field characters are runs of the same element, by the first of them."""
    loose: frozenset[_Element]
    """Field characters of all others, such as those of fields that end in another paragraph, and instructions."""
    computed: frozenset[_Element]
    """Runs between such characters that Word computes."""


def tagged(paragraph: _Element, *tags: str) -> list[_Element]:
    """Elements of a paragraph with certain names, without those of paragraphs inside it, such as text boxes."""
    return [element for element in own_elements(paragraph, (f"{W}p",)) if element.tag in tags]


def empty_run(run: _Element) -> _Element:
    """A run with the format of another, and without its content."""
    copy = run.makeelement(run.tag, dict(run.attrib), run.nsmap)
    properties = run.find(f"{W}rPr")
    if properties is not None:
        copy.append(deepcopy(properties))
    return copy


def is_computed(instruction: str) -> bool:
    """Return whether Word computes the result of a field with an instruction, such as ``PAGE``."""
    name = instruction.split(maxsplit=1)[:1]
    return not name or name[0].upper() not in _TRANSLATED


def read_fields(paragraph: _Element) -> Fields:
    """Find the fields of a paragraph. A run with a field character and other content is divided."""
    for run in tagged(paragraph, f"{W}r"):
        _divide(run)
    runs = tagged(paragraph, f"{W}r")
    whole: dict[_Element, Field] = {}
    loose = {run for run in runs if run.find(f"{W}instrText") is not None}
    changes = [0] * (len(runs) + 1)
    for first, last, field in _complete(runs, loose):
        field_chars = {field_char for field_char in (field.begin, field.separate, field.end) if field_char is not None}
        if len({field_char.getparent() for field_char in field_chars}) == 1:
            whole[field.begin] = field
            continue
        loose |= field_chars
        changes[first] += field.is_computed
        changes[last] -= field.is_computed
    computed = frozenset(run for run, depth in zip(runs, accumulate(changes), strict=False) if depth)
    return Fields(whole, frozenset(loose), computed)


def _complete(runs: Sequence[_Element], loose: set[_Element]) -> Iterator[tuple[int, int, Field]]:
    """Fields with a beginning and an end, and their indices; the field characters of others are added to ``loose``."""
    opened: list[tuple[int, list[_Element], list[str]]] = []  # index, field characters and instruction
    for index, run in enumerate(runs):
        field_char = run.find(f"{W}fldChar")
        kind = None if field_char is None else field_char.get(f"{W}fldCharType")
        if kind == "begin":
            opened.append((index, [run], []))
        elif kind is not None and not opened:
            loose.add(run)
        elif kind == "end":
            first, field_chars, instruction = opened.pop()
            separate = field_chars[1] if len(field_chars) > 1 else None
            loose.update(field_chars[2:])
            yield first, index, Field(field_chars[0], separate, run, is_computed("".join(instruction)))
        elif kind is not None:
            opened[-1][1].append(run)
        elif opened and len(opened[-1][1]) == 1:
            opened[-1][2].extend(text.text or "" for text in run.iterchildren(f"{W}instrText"))
    loose.update(field_char for _, field_chars, _ in opened for field_char in field_chars)


def _divide(run: _Element) -> None:
    """Give every field character of a run a run of its own."""
    content = [child for child in run if child.tag != f"{W}rPr"]
    if len(content) < 2 or all(child.tag != f"{W}fldChar" for child in content):
        return
    last, empty = run, empty_run(run)
    for child in content[1:]:
        alone = deepcopy(empty)
        alone.append(child)
        last.addnext(alone)
        last = alone


def read_range(element: _Element) -> tuple[Hashable, bool] | None:
    """Return what an element such as ``bookmarkStart`` bounds, and whether it is its end; ``None`` for others."""
    number = element.get(f"{W}id")
    if number is None or not element.tag.endswith(("Start", "End")):
        return None
    is_end = element.tag.endswith("End")
    return (element.tag.removesuffix("End").removesuffix("Start"), number), is_end


def divided(children: Sequence[_Element], fields: Fields) -> tuple[list[Sequence[_Element]], dict[_Element, _Element]]:
    """Group the children of a paragraph or the like.

    Returns:
        Groups of children that stay together, and the end of the fields that some of them begin, by the first of each.
    """
    indices = {child: index for index, child in enumerate(children)}
    groups: list[Sequence[_Element]] = []
    ends: dict[_Element, _Element] = {}
    index = 0
    while index < len(children):
        child = children[index]
        field, last = fields.whole.get(child), child
        if field is not None:
            last = field.end if field.is_computed or field.separate is None else field.separate
            if last is not field.end:
                ends[child] = field.end
        groups.append(children[index : indices[last] + 1])
        index = indices[last] + 1
    return groups, ends


def result_text(group: Sequence[_Element], fields: Fields) -> str:
    """The text of a field that is computed, or of other elements."""
    field = fields.whole.get(group[0])
    first = 0 if field is None or field.separate is None else group.index(field.separate)
    texts = (text for element in group[first:] for text in element.iter(f"{W}t", f"{W}tab", f"{W}br"))
    return "".join(text.text or " " for text in texts)
