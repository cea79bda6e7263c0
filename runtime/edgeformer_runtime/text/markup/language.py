"""The language that an HTML document says it is in."""

from __future__ import annotations

import re

from edgeformer_runtime.text.block import spliced
from edgeformer_runtime.text.markup.attributes import ATTRIBUTE
from edgeformer_runtime.text.markup.tokens import html_tokens, names

_CODE = re.compile(r"[a-zA-Z]{2,3}(?:[-_][a-zA-Z0-9]{2,8})*")
_RIGHT_TO_LEFT = names("ar ara arb arc ckb div dv fa fas he heb iw nqo pes prs ps pus sd snd syr ug uig ur urd yi yid")
_RIGHT_TO_LEFT_SCRIPTS = names("adlm arab hebr nkoo syrc thaa")


def with_language(text: str, language: str) -> str:
    """Set the language of a document, and the direction of its text, where its ``html`` element has a language.

    Args:
        text: the document.
        language: code of the language; what is not a code changes nothing.
    """
    offset = 0
    for token in html_tokens(text):
        if token.name not in ("", "!") or (not token.name and token.raw.strip("\ufeff \t\r\n")):
            break
        offset += len(token.raw)
    else:
        return text
    if token.name != "html" or token.is_end or not _CODE.fullmatch(language):
        return text
    return text[:offset] + _changed(token.raw, language.replace("_", "-")) + text[offset + len(token.raw) :]


def _changed(tag: str, language: str) -> str:
    direction = "rtl" if _is_right_to_left(language) else "ltr"
    found = [match for match in ATTRIBUTE.finditer(tag, len("<html")) if match.lastgroup != "name"]
    present = {match["name"].lower() for match in found}
    if not present & {"lang", "xml:lang"}:
        return tag
    values = {"lang": language, "xml:lang": language, "dir": direction}
    changes = [
        (*match.span(str(match.lastgroup)), values[match["name"].lower()])
        for match in found
        if match["name"].lower() in values
    ]
    if direction == "rtl" and "dir" not in present:
        changes.insert(0, (len("<html"), len("<html"), ' dir="rtl"'))
    return spliced(tag, changes)


def _is_right_to_left(language: str) -> bool:
    first, *rest = language.lower().split("-")
    script = next((part for part in rest if len(part) == 4 and part.isalpha()), "")
    return script in _RIGHT_TO_LEFT_SCRIPTS if script else first in _RIGHT_TO_LEFT
