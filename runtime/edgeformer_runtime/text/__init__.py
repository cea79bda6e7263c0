"""Everything between a text and its sentences: segmentation, markup, documents, glossaries.

>>> from edgeformer_runtime import Translator
>>> from edgeformer_runtime.text import TextTranslator
>>> TextTranslator(Translator.open("bundle")).translate(["A dog runs. It barks."])[0].text  # doctest: +SKIP
'Un chien court. Il aboie.'
"""

from edgeformer_runtime.text.glossary import Glossary
from edgeformer_runtime.text.options import TextOptions
from edgeformer_runtime.text.plan import Plan
from edgeformer_runtime.text.results import SentenceTranslation, TextTranslation, TranslatedWord
from edgeformer_runtime.text.text_translator import TextTranslator

__all__ = [
    "Glossary",
    "Plan",
    "SentenceTranslation",
    "TextOptions",
    "TextTranslation",
    "TextTranslator",
    "TranslatedWord",
]
