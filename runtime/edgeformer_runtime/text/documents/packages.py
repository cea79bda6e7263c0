"""Zip packages of XML files, which are what office documents are. Both are untrusted input."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgeformer_runtime.errors import ConfigError, DataError
from edgeformer_runtime.limits import MAX_DOCUMENT_BYTES, MAX_DOCUMENT_FILES, MAX_DOCUMENT_TAGS

if TYPE_CHECKING:
    from lxml.etree import _Element


DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, OverflowError, RuntimeError, ValueError)
"""What reading a damaged or encrypted package may raise."""


class Package:
    """The files of a zip package, all read into memory.

    Args:
        content: the package.
        name: its file name, for errors.

    Raises:
        ConfigError: lxml is not installed.
        DataError: the package is damaged, encrypted, or too large when unpacked.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._name = name
        self._tags = 0
        try:
            from lxml import etree
        except ModuleNotFoundError:
            raise ConfigError(f"`{name}` needs lxml: pip install 'edgeformer[text]'.") from None
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
            DataError: it is missing, is not XML, or declares entities; or the package has too many tags.
        """
        content = next((content for entry, content in self._files.items() if entry.filename == name), None)
        if content is None:
            raise DataError(f"`{self._name}` lacks `{name}`; save it again.")
        self._tags += content.count(b"<")
        if self._tags > MAX_DOCUMENT_TAGS:
            raise DataError(f"`{self._name}` has more than {MAX_DOCUMENT_TAGS:,} tags; divide it.")
        parser = self._etree.XMLParser(
            resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, remove_blank_text=False
        )
        try:
            root = self._etree.fromstring(content, parser)
        except self._etree.XMLSyntaxError as error:
            raise DataError(f"`{name}` in `{self._name}` is damaged: {error}. Save it again.") from None
        if root.getroottree().docinfo.doctype:
            raise DataError(f"`{name}` in `{self._name}` declares a document type, which no office document does.")
        return root

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

    def _unpacked(self, packed: zipfile.ZipFile) -> dict[zipfile.ZipInfo, bytes]:
        entries, left, files = packed.infolist(), MAX_DOCUMENT_BYTES, {}
        if len(entries) > MAX_DOCUMENT_FILES:
            raise DataError(f"`{self._name}` has more than {MAX_DOCUMENT_FILES:,} files.")
        for entry in entries:
            with packed.open(entry) as file:
                content = file.read(left + 1)  # whatever size the entry claims
            left -= len(content)
            if left < 0:
                raise DataError(f"`{self._name}` has more than {MAX_DOCUMENT_BYTES:,} bytes when it is unpacked.")
            files[entry] = content
        return files
