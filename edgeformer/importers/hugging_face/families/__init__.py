"""Families of models, a module for each: what is special about its network, its vocabulary and its languages."""

from __future__ import annotations

from collections.abc import Mapping

from edgeformer.importers.hugging_face.families.bart import BART
from edgeformer.importers.hugging_face.families.m2m import M2M_100
from edgeformer.importers.hugging_face.families.marian import MARIAN
from edgeformer.importers.hugging_face.families.mbart import MBART
from edgeformer.importers.hugging_face.families.pegasus import PEGASUS
from edgeformer.importers.hugging_face.families.t5 import T5
from edgeformer.importers.hugging_face.family import ModelFamily

FAMILIES: Mapping[str, ModelFamily] = {
    "bart": BART,
    "m2m_100": M2M_100,
    "marian": MARIAN,
    "mbart": MBART,
    "mt5": T5,
    "pegasus": PEGASUS,
    "t5": T5,
    "umt5": T5,
}
"""By ``model_type``."""
