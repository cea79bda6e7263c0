"""Word documents (``.docx``): paragraphs of the text, of headers, footers, notes and comments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeformer_runtime.errors import DataError
from edgeformer_text.documents.document import Document
from edgeformer_text.documents.office import WORD as _W
from edgeformer_text.documents.office import OfficeParagraph, TagContent, office_document
from edgeformer_text.documents.packages import Package

if TYPE_CHECKING:
    from lxml.etree import _Element

_PART = re.compile(r"word/(?:document|header|footer|footnotes|endnotes|comments)\d*\.xml")
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_Format = tuple[object, ...]
_INVISIBLE = frozenset(f"{_W}{name}" for name in ("lang", "noProof"))
"""What the format of a run says about spelling checks."""
_CONTAINERS = frozenset(
    f"{_W}{name}"
    for name in ("bdo", "customXml", "dir", "fldSimple", "hyperlink", "ins", "moveTo", "sdt", "sdtContent", "smartTag")
)
"""Elements of a paragraph that have runs."""
_PROPERTIES = frozenset(f"{_W}{name}" for name in ("customXmlPr", "pPr", "sdtEndPr", "sdtPr", "smartTagPr"))
"""What stays at the beginning of a paragraph or container."""
_BREAKS = frozenset(f"{_W}{name}" for name in ("br", "cr", "tab"))
"""What ends a sentence inside a paragraph."""
_SEPARATE = _BREAKS | {f"{_W}fldChar", f"{_W}instrText"}
"""What ends one if it is alone in its run."""
_TRANSLATED_FIELDS = frozenset(("FORMTEXT", "HYPERLINK", "QUOTE", "TOC"))
"""Fields whose result is text that was written, not computed."""


@dataclass
class _WordParagraph(OfficeParagraph):
    """A paragraph. Text whose format is not that of most text of its paragraph, link or the like is marked."""

    names_of_paragraphs = (f"{_W}p",)

    def clear(self, element: _Element) -> None:
        """See :meth:`OfficeParagraph.clear`."""
        for child in list(element):
            if child.tag not in _PROPERTIES:
                element.remove(child)

    def append(self, parent: _Element, format: _Element | None, text: str) -> None:
        """Append text as a run; see :meth:`OfficeParagraph.append`."""
        run = parent.makeelement(f"{_W}r") if format is None else deepcopy(format)
        content = run.makeelement(f"{_W}t")
        content.text = text
        content.set(_SPACE, "preserve")
        run.append(content)
        parent.append(run)


def read_docx(content: bytes, name: str) -> Document:
    """Read a Word document.

    Raises:
        ConfigError: lxml is not installed.
        DataError: the document is damaged.
    """
    package = Package(content, name)
    roots = {part: package.xml(part) for part in package.names if _PART.fullmatch(part)}
    if not any(root.tag == f"{_W}document" for root in roots.values()):
        package.xml("word/document.xml")
        raise DataError(f"`{name}` has no text in the usual format of Word; save it again, not as Strict Open XML.")
    elements = [
        element
        for root in roots.values()
        for element in package.paragraphs(root, f"{_W}p")
        if any(part.tag == f"{_W}t" and part.text for part in _WordParagraph.own_elements(element))
    ]
    return office_document(package, roots, [_read(element) for element in elements])


def _is_text_run(element: _Element) -> bool:
    return element.tag == f"{_W}r" and any(child.tag == f"{_W}t" and child.text for child in element)


def _level(run: _Element) -> str:
    """``superscript`` or ``subscript`` for a footnote number, an exponent or an index: a run without letters; or else
    empty."""
    level = run.find(f"{_W}rPr/{_W}vertAlign")
    has_letters = any(map(str.isalpha, "".join(run.itertext(f"{_W}t"))))
    return "" if level is None or has_letters else level.get(f"{_W}val", "").replace("baseline", "")


def _format(run: _Element) -> _Format:
    """The format of a run, to be compared with that of others."""
    properties = run.find(f"{_W}rPr")
    if properties is None:
        return ()
    content = _content(properties)
    return () if content == (properties.tag,) else content


def _content(element: _Element) -> tuple[object, ...]:
    children = [child for child in element if child.tag not in _INVISIBLE]
    return (element.tag, *sorted(element.attrib.items()), *map(_content, children))


def _read(element: _Element) -> _WordParagraph:
    paragraph = _WordParagraph(element=element)
    _read_children(paragraph, element)
    return paragraph


def _read_children(paragraph: _WordParagraph, element: _Element) -> None:
    """Add what a paragraph or a container has."""
    for run in list(element.iterchildren(f"{_W}r")):
        _divide(run)
    base = _most_common_run(element)
    if base is not None:
        paragraph.bases[element] = _empty_run(base)
    children = [child for child in element if child.tag not in _PROPERTIES and child.tag != f"{_W}proofErr"]
    last: _Format | None = None
    closing: set[_Element] = set()
    for group, end in _groups(children):
        child = group[0]
        if base is not None and _is_text_run(child) and not _level(child):
            last = _read_run(paragraph, child, _format(base), last)
            continue
        if last is not None:
            paragraph.close()
            last = None
        if end is not None:
            paragraph.open(TagContent(group, end))
            closing.add(end)
        elif child in closing:
            paragraph.close()
        else:
            _read_group(paragraph, group)
    if last is not None:
        paragraph.close()


def _groups(children: Sequence[_Element]) -> Iterator[tuple[Sequence[_Element], _Element | None]]:
    """Divide the children of a paragraph or the like into groups that stay together.

    A field, such as a page number or a link, is written as runs: a field character that begins it, its instruction, one
    that separates its result from that, the result, and one that ends it. What Word computes is one group; of others,
    it is what is before the result, which is returned with the run that ends the field.
    """
    lasts = list(range(len(children)))
    ends: dict[int, _Element] = {}
    opened: list[tuple[int, list[int], list[str]]] = []  # each begun field, where it is separated, and its instruction
    for index, child in enumerate(children):
        kind = _field_character(child)
        if kind == "begin":
            opened.append((index, [], []))
        elif kind == "separate" and opened:
            opened[-1][1].append(index)
        elif kind == "end" and opened:
            first, separated, instruction = opened.pop()
            lasts[first] = index
            if separated and not _is_computed("".join(instruction)):
                lasts[first], ends[first] = separated[0], child
        elif opened and not opened[-1][1]:
            opened[-1][2].extend(text.text or "" for text in child.iterchildren(f"{_W}instrText"))
    index = 0
    while index < len(children):
        yield children[index : lasts[index] + 1], ends.get(index)
        index = lasts[index] + 1


def _field_character(run: _Element) -> str | None:
    """``begin``, ``separate`` or ``end``; ``None`` for other runs and elements."""
    character = run.find(f"{_W}fldChar") if run.tag == f"{_W}r" else None
    return None if character is None else character.get(f"{_W}fldCharType")


def _is_computed(instruction: str) -> bool:
    """Return whether Word computes the result of a field with an instruction, such as ``PAGE``."""
    name = instruction.split(maxsplit=1)[:1]
    return not name or name[0].upper() not in _TRANSLATED_FIELDS


def _divide(run: _Element) -> None:
    """Give every field character of a run a run of its own."""
    content = [child for child in run if child.tag != f"{_W}rPr"]
    if len(content) < 2 or all(child.tag != f"{_W}fldChar" for child in content):
        return
    last, empty = run, _empty_run(run)
    for child in content[1:]:
        alone = deepcopy(empty)
        alone.append(child)
        last.addnext(alone)
        last = alone


def _empty_run(run: _Element) -> _Element:
    """A run with the format of another, and without its content."""
    copy = run.makeelement(run.tag, dict(run.attrib), run.nsmap)
    properties = run.find(f"{_W}rPr")
    if properties is not None:
        copy.append(deepcopy(properties))
    return copy


def _read_group(paragraph: _WordParagraph, group: Sequence[_Element]) -> None:
    """Add a container, a field that is computed, or what has no text."""
    child = group[0]
    if child.tag == f"{_W}fldSimple" and _is_computed(child.get(f"{_W}instr", "")):
        paragraph.point(child, unread=_result(group))
    elif child.tag in _CONTAINERS:
        paragraph.open(TagContent(container=child))
        _read_children(paragraph, child)
        paragraph.close()
    elif len(group) > 1 or _is_text_run(child):
        is_unread = _level(child) == "superscript"  # `word1` is no word, but `H2O` is
        paragraph.point(*group, unread="" if is_unread else _result(group))
    else:
        # Field characters of fields that end in another element stay in order, which sentences do.
        is_break = child.tag == f"{_W}r" and any(part.tag in _SEPARATE for part in child)
        paragraph.point(child, character="\n" if is_break else "")


def _result(group: Sequence[_Element]) -> str:
    """The text of a field that is computed, or of other elements."""
    kinds = list(map(_field_character, group))
    shown = group[kinds.index("separate") :] if "separate" in kinds else group
    parts = (part for element in shown for part in element.iter(f"{_W}t", f"{_W}tab", f"{_W}br"))
    return "".join(part.text or " " for part in parts)


def _most_common_run(element: _Element) -> _Element | None:
    """The first run of the format that most text has; ``None`` if there is no text."""
    sizes: Counter[_Format] = Counter()
    runs: dict[_Format, _Element] = {}
    for run in filter(_is_text_run, element):
        sizes[_format(run)] += len("".join(run.itertext(f"{_W}t")))
        runs.setdefault(_format(run), run)
    return runs[sizes.most_common(1)[0][0]] if sizes else None


def _read_run(paragraph: _WordParagraph, run: _Element, base: _Format, last: _Format | None) -> _Format | None:
    """Add a run; return its format if its element stays open, for runs of the same format that follow."""
    own = _format(run)
    if last is not None and own != last:
        paragraph.close()
        last = None
    empty = _empty_run(run)
    if own != base and last is None:
        paragraph.open(TagContent(format=empty))
        last = own
    for child in list(run):
        if child.tag == f"{_W}t":
            paragraph.plain(child.text or "")
        elif child.tag != f"{_W}rPr":  # such as a line break
            alone = deepcopy(empty)
            alone.append(child)  # not a copy: it may have paragraphs, as text boxes do
            paragraph.point(alone, character="\n" if child.tag in _BREAKS else "")
    return last
