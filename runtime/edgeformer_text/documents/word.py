"""Word documents (``.docx``): paragraphs of the text, of headers, footers, notes and comments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgeformer_runtime.errors import DataError
from edgeformer_text.documents.document import Document
from edgeformer_text.documents.fields import (
    Fields,
    divided,
    empty_run,
    is_computed,
    read_fields,
    read_range,
    result_text,
    tagged,
)
from edgeformer_text.documents.fields import W as _W
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


@dataclass
class _Paragraph(OfficeParagraph):
    """A paragraph. Text whose format is not that of most text of its paragraph, link or the like is marked."""

    names_of_paragraphs = (f"{_W}p",)
    read_range = staticmethod(read_range)
    fields: Fields = field(kw_only=True)

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
        if any(text.text for text in tagged(element, f"{_W}t"))
    ]
    return office_document(package, roots, [_read(element) for element in elements])


def _is_text_run(element: _Element) -> bool:
    return element.tag == f"{_W}r" and any(child.tag == f"{_W}t" and child.text for child in element)


def _level(run: _Element) -> str:
    """``superscript`` or ``subscript`` for a footnote mark, an exponent or an index: a run without letters; or else
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


def _read(element: _Element) -> _Paragraph:
    paragraph = _Paragraph(element=element, fields=read_fields(element))
    _read_children(paragraph, element)
    return paragraph


def _read_children(paragraph: _Paragraph, element: _Element) -> None:
    """Add what a paragraph or a container has."""
    base = _most_common_run(element)
    if base is not None:
        paragraph.bases[element] = empty_run(base)
    children = [child for child in element if child.tag not in _PROPERTIES and child.tag != f"{_W}proofErr"]
    groups, ends = divided(children, paragraph.fields)
    closing = set(ends.values())
    last: _Format | None = None
    for group in groups:
        child = group[0]
        if base is not None and _is_text_run(child) and child not in paragraph.fields.computed and not _level(child):
            last = _read_run(paragraph, child, _format(base), last)
            continue
        if last is not None:
            paragraph.close()
            last = None
        if child in ends:
            paragraph.open(TagContent(group, ends[child]))
        elif child in closing:
            paragraph.close()
        else:
            _read_group(paragraph, group)
    if last is not None:
        paragraph.close()


def _read_group(paragraph: _Paragraph, group: Sequence[_Element]) -> None:
    """Add a container, a field that is computed, or what has no text."""
    child = group[0]
    if child.tag == f"{_W}fldSimple" and is_computed(child.get(f"{_W}instr", "")):
        paragraph.point(child, unread=result_text(group, paragraph.fields))
    elif child.tag in _CONTAINERS:
        paragraph.open(TagContent(container=child))
        _read_children(paragraph, child)
        paragraph.close()
    elif len(group) > 1 or _is_text_run(child):
        is_unread = _level(child) == "superscript"  # `word1` is no word, but `H2O` is
        paragraph.point(*group, unread="" if is_unread else result_text(group, paragraph.fields))
    else:
        is_break = child.tag == f"{_W}r" and any(part.tag in _BREAKS for part in child)
        paragraph.point(child, character="\n" if is_break or child in paragraph.fields.loose else "")


def _most_common_run(element: _Element) -> _Element | None:
    """The first run of the format that most text has; ``None`` if there is no text."""
    sizes: Counter[_Format] = Counter()
    runs: dict[_Format, _Element] = {}
    for run in filter(_is_text_run, element):
        sizes[_format(run)] += len("".join(run.itertext(f"{_W}t")))
        runs.setdefault(_format(run), run)
    return runs[sizes.most_common(1)[0][0]] if sizes else None


def _read_run(paragraph: _Paragraph, run: _Element, base: _Format, last: _Format | None) -> _Format | None:
    """Add a run; return its format if its element stays open, for runs of the same format that follow."""
    own = _format(run)
    if last is not None and own != last:
        paragraph.close()
        last = None
    empty = empty_run(run)
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
