"""Zip packages of XML files, which are what office documents are. Both are untrusted input."""

from __future__ import annotations

import codecs
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from edgeformer_runtime.errors import ConfigError, DataError, missing_package
from edgeformer_runtime.files import check_members
from edgeformer_runtime.limits import MAX_DOCUMENT_BYTES, MAX_DOCUMENT_DEPTH, MAX_DOCUMENT_ELEMENTS, MAX_DOCUMENT_FILES

if TYPE_CHECKING:
    from lxml.etree import _Element


DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, OverflowError, RuntimeError, ValueError)
"""What reading a damaged or encrypted package may raise."""
_ENCODING = re.compile(r"""\s*<\?xml[^<>]*?\bencoding\s*=\s*["']([^"'<>]*)""")
_PIECE = 2**16
"""Bytes of XML that are parsed before elements are counted."""


class Package:
    """The files of a zip package, all read into memory; its name is for errors.

    Raises:
        ConfigError: lxml is not installed.
        DataError: the package is damaged, encrypted, or too large when unpacked.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._name = name
        self._elements = 0
        try:
            from lxml import etree
        except ModuleNotFoundError as error:
            raise ConfigError(missing_package(f"`{name}`", error.name, "text")) from None
        self._etree = etree
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as packed:
                self._files = self._unpacked(packed)
        except DAMAGE as error:
            raise DataError(f"`{name}` is damaged: {error}. Save it again.") from None

    @property
    def names(self) -> list[str]:
        """Names of the files."""
        return [entry.filename for entry in self._files]

    def xml(self, name: str) -> _Element:
        """Parse an XML file.

        Raises:
            DataError: it is missing, is not XML, or declares entities; or the package has too many elements.
        """
        content = next((content for entry, content in self._files.items() if entry.filename == name), None)
        if content is None:
            raise DataError(f"`{self._name}` lacks `{name}`; save it again.")
        parser = self._etree.XMLPullParser(
            ("start", "start-ns", "comment", "pi"),
            resolve_entities=False,
            load_dtd=False,
            huge_tree=False,
            encoding="UTF-8",
        )
        try:
            for piece in _utf8_pieces(content):
                parser.feed(piece)
                self._count(parser.read_events())
            root: _Element = parser.close()
        except (self._etree.XMLSyntaxError, ValueError) as error:
            raise DataError(f"`{name}` in `{self._name}` is damaged: {error}. Save it again.") from None
        if root.getroottree().docinfo.doctype:
            raise DataError(f"`{name}` in `{self._name}` declares a document type, which no office document does.")
        return root

    def paragraphs(self, root: _Element, *names: str) -> list[_Element]:
        """Elements with these names, in order.

        Raises:
            DataError: there are many inside each other.
        """
        depths: dict[_Element, int] = {}
        for element in root.iter(*names):
            around = next(element.iterancestors(*names), None)
            depths[element] = 1 if around is None else 1 + depths[around]
            if depths[element] > MAX_DOCUMENT_DEPTH:
                raise DataError(f"`{self._name}` has more than {MAX_DOCUMENT_DEPTH} nested paragraphs.")
        return list(depths)

    def written(self, changed: Mapping[str, _Element]) -> bytes:
        """Pack the files, with other XML in place of some."""
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as packed:
            for entry, content in self._files.items():
                if entry.filename in changed:
                    root = changed[entry.filename].getroottree()
                    content = self._etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
                packed.writestr(entry, content)
        return stream.getvalue()

    def _count(self, events: Iterator[tuple[str, Any]]) -> None:
        for event, part in events:
            self._elements += 1 + (len(part.attrib) if event == "start" else 0)
        if self._elements > MAX_DOCUMENT_ELEMENTS:
            raise DataError(f"`{self._name}` has more than {MAX_DOCUMENT_ELEMENTS:,} elements; split it.")

    def _unpacked(self, packed: zipfile.ZipFile) -> dict[zipfile.ZipInfo, bytes]:
        left, files = MAX_DOCUMENT_BYTES, {}
        for entry in check_members(packed, MAX_DOCUMENT_FILES):
            with packed.open(entry) as file:
                content = file.read(left + 1)  # whatever size the entry claims
            left -= len(content)
            if left < 0:
                raise DataError(f"`{self._name}` has more than {MAX_DOCUMENT_BYTES:,} bytes when it is unpacked.")
            files[entry] = content
        return files


def _utf8_pieces(content: bytes) -> Iterator[bytes]:
    """Divide XML, which must be UTF-8 or UTF-16.

    Raises:
        ValueError: its encoding is, or is said to be, another one.
    """
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = content.decode("utf-16" if is_utf16 else "utf-8-sig")
    said = _ENCODING.match(text)
    if said is not None and said[1].upper() not in ("UTF-8", "UTF-16", "US-ASCII"):
        raise ValueError(f"its encoding is {said[1][:40]} instead of UTF-8 or UTF-16")
    content = text.encode()
    return (content[start : start + _PIECE] for start in range(0, len(content), _PIECE))
