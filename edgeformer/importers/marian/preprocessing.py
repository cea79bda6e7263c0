"""Releases of OPUS-MT with BPE codes: whether their text is prepared by the scripts that are known."""

from __future__ import annotations

import re
from pathlib import Path

from edgeformer.errors import ImporterError
from edgeformer.importers.archive import read_bytes
from edgeformer.importers.languages import stated_tag
from edgeformer.importers.registry import Given

SCRIPT, TRUECASER = "preprocess.sh", "source.tcmodel"
MAX_SCRIPT = 1 << 16
STEPS = {
    "replace-unicode-punctuation.perl",
    "remove-non-printing-char.perl",
    "normalize-punctuation.perl",
    "tokenizer.perl",
    "apply_bpe.py",
}
"""Programs that every release with BPE codes calls, in this order."""


def moses_languages(folder: Path, given: Given) -> tuple[str, str]:
    """Return codes of the languages by whose rules Moses' scripts split the text of a release.

    Raises:
        ImporterError: its text is prepared in another way, or the languages, which no file of it states, are not given.
    """
    script = folder / SCRIPT
    text = read_bytes(script, MAX_SCRIPT).decode("utf-8", "replace") if script.is_file() else ""
    options = [found.split() for found in re.findall(r"/tokenizer\.perl([^|\n]*)", text)]
    is_known = set(re.findall(r"[\w-]+\.(?:perl|py)\b", text)) == STEPS
    if not is_known or not all("-a" in words and "-no-escape" not in words for words in options):
        raise ImporterError(
            f"`{folder}` has BPE codes, but no `{SCRIPT}` that prepares text as OPUS-MT's releases do; how it was "
            "tokenized is not known."
        )
    if (truecaser := folder / TRUECASER).is_file() and truecaser.stat().st_size:
        raise ImporterError(f"`{truecaser}` changes the case of words, which is not supported.")
    if not given.source_language or not given.target_language:
        raise ImporterError(
            "The BPE codes of the model are applied to words that are split by rules for its languages; state them "
            "with --source-language and --target-language."
        )
    source, target = (stated_tag(tag).split("-")[0] for tag in (given.source_language, given.target_language))
    return source, target
