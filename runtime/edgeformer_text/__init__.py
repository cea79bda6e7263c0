"""Everything between a text and its sentences: segmentation, markup, documents, glossaries.

>>> from edgeformer_runtime import Translator
>>> from edgeformer_text import TextTranslator
>>> TextTranslator(Translator.open("bundle")).translate(["A dog runs. It barks."])[0].text  # doctest: +SKIP
'Un chien court. Il aboie.'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeformer_text.glossary import Glossary as Glossary
    from edgeformer_text.options import TextOptions as TextOptions
    from edgeformer_text.plan import Plan as Plan
    from edgeformer_text.results import SentenceTranslation as SentenceTranslation
    from edgeformer_text.results import TextTranslation as TextTranslation
    from edgeformer_text.results import TranslatedWord as TranslatedWord
    from edgeformer_text.text_translator import TextTranslator as TextTranslator

_MODULES = {
    "Glossary": "glossary",
    "Plan": "plan",
    "SentenceTranslation": "results",
    "TextOptions": "options",
    "TextTranslation": "results",
    "TextTranslator": "text_translator",
    "TranslatedWord": "results",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:  # on first use, so that what reads documents does not load onnxruntime
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
