"""Quality by skill: what a model between English and French does with numbers, names, placeholders, letter case,
missing punctuation, short strings and two clauses, and with the text of programs.

The sets are made of the test parts of Tatoeba and of the strings of programs, which no model of the recipes
``everyday-*`` was trained on, of templates for numbers, and of a phrase book. ``kept`` is the share of sentences whose
numbers, names or placeholders are all in the translation, numbers in the format of the target language.

::

    python -m edgeformer_bench.studies.skills models/en-fr --data DIR --json skills.json
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import click

from edgeformer.config import DataConfig
from edgeformer.data.augment import form
from edgeformer.data.augment.joined import Joined
from edgeformer.data.augment.names import Names, substituted
from edgeformer.data.augment.numbers import Numbers
from edgeformer.data.augment.placeholders import Placeholders
from edgeformer.data.corpora import load_corpus
from edgeformer.data.text import Pair
from edgeformer.quality.evaluation import translate_all
from edgeformer.quality.scores import score
from edgeformer.quality.translators import open_translator
from edgeformer_runtime.cli import options
from edgeformer_runtime.cli.output import atomic_text, console, json_text, table
from edgeformer_runtime.text.protected import protected_spans
from edgeformer_runtime.text.text_translator import TextTranslator
from edgeformer_runtime.translator import AnyTranslator

SIZE = 300
"""Sentences per set, except for the two test parts, which are used whole."""
PER_TEMPLATE = 10
"""Sentences per template of numbers."""
SHORT = 4
"""Words of a short string, at most."""
NAMES = "Adaeze Anouk Bjarne Casimir Dragana Eilidh Fenella Gudrun Ingmar Jorunn Keziah Leocadia Mbali Oisin Padraig"
"""Names that the altered copies of the training text do not have."""

Kept = Callable[[Pair, str], bool]
"""Whether a translation has what must be kept of a pair."""


@dataclass(frozen=True, kw_only=True)
class Skill:
    """Sentences that show one skill."""

    name: str
    pairs: Sequence[Pair]
    """Sources and references."""
    kept: Kept | None = None
    """What to check besides BLEU and chrF."""
    scored: Callable[[str], str] = str
    """What of a translation and of a reference is scored."""


def skills(source_language: str, target_language: str, data_dir: Path | None) -> list[Skill]:
    """Make the sets, always the same."""
    languages = source_language, target_language
    everyday, software = (
        load_corpus(DataConfig(corpus=f"{name}-{source_language}-{target_language}"), data_dir).test
        for name in ("tatoeba", "software")
    )
    Random(2).shuffle(everyday)  # the corpus is sorted by length
    names, numbers, joined = Names(languages), Numbers(languages), Joined(everyday, languages)
    placeholders = Placeholders(names, numbers)
    short = [pair for pair in everyday if len(pair[0].split()) <= SHORT and form.unpunctuated(pair, Random())][:SIZE]
    return [
        Skill(name="tatoeba", pairs=everyday),
        Skill(name="software", pairs=software),
        Skill(name="software, at most 4 words", pairs=[pair for pair in software if len(pair[0].split()) <= SHORT]),
        Skill(name="numbers", pairs=_numbers(languages), kept=partial(_has_numbers, numbers)),
        Skill(name="names", pairs=_altered(everyday, partial(_renamed, names)), kept=_has_names),
        Skill(name="placeholders", pairs=_altered(everyday, placeholders.inserted), kept=_has_placeholders),
        Skill(name="short", pairs=short, scored=_bare),
        Skill(name="short, unpunctuated", pairs=_altered(short, form.unpunctuated), scored=_bare),
        Skill(name="unpunctuated", pairs=_altered(everyday, form.unpunctuated), scored=_bare),
        Skill(name="lowercase", pairs=_altered(everyday, form.lowercase)),
        Skill(name="uppercase", pairs=_altered(everyday, form.uppercase)),
        Skill(name="titlecase", pairs=_altered(everyday, form.titlecase)),
        Skill(name="curly quotes", pairs=_altered(everyday, form.quotes)),
        Skill(name="two clauses", pairs=_altered(everyday, joined.joined)),
        Skill(name="phrase book", pairs=_phrases(languages)),
    ]


def measure(translator: AnyTranslator, data_dir: Path | None, *, as_text: bool = False) -> dict[str, dict[str, Any]]:
    """Translate every set and score it.

    Args:
        translator: a bundle or a run.
        data_dir: folder with corpora.
        as_text: translate whole texts: split sentences, keep placeholders.

    Returns:
        By skill, the number of sentences, scores and outputs.
    """
    report: dict[str, dict[str, Any]] = {}
    for skill in skills(*translator.languages, data_dir):
        sources, references = ([pair[side] for pair in skill.pairs] for side in (0, 1))
        if as_text:
            texts = [result.text for result in TextTranslator(translator).translate(sources)]
        else:
            texts = [result.text for result in translate_all(translator, sources, translator.defaults)]
        scores = score(list(map(skill.scored, texts)), list(map(skill.scored, references)), "13a")
        report[skill.name] = {"sentences": len(texts), "bleu": scores.bleu, "chrf": scores.chrf}
        if skill.kept is not None:
            kept = [skill.kept(pair, text) for pair, text in zip(skill.pairs, texts, strict=True)]
            report[skill.name]["kept"] = sum(kept) / len(kept)
        report[skill.name]["outputs"] = list(zip(sources, references, texts, strict=True))
    return report


def _altered(pairs: Sequence[Pair], alter: Callable[[Pair, Random], Pair | None]) -> list[Pair]:
    """Altered copies of pairs that allow it, :data:`SIZE` at most."""
    random = Random(2)
    copies = (alter(pair, random) for pair in pairs)
    return list(islice((copy for copy in copies if copy is not None), SIZE))


def _renamed(names: Names, pair: Pair, random: Random) -> Pair | None:
    """The pair with unusual names."""
    found = [spans for _, spans in names.find(pair)]
    new = random.sample(NAMES.split(), len(found))
    return substituted(pair, found, [(name, name) for name in new]) if found else None


def _bare(text: str) -> str:
    """A sentence without its final punctuation, which such a sentence may have or not."""
    return text.rstrip(".!?… \u00a0\u202f")


def _has_names(pair: Pair, text: str) -> bool:
    return all(name in text for name in NAMES.split() if name in pair[0])


def _has_placeholders(pair: Pair, text: str) -> bool:
    return all(pair[0][begin:end] in text for begin, end in protected_spans(pair[0]))


def _has_numbers(numbers: Numbers, pair: Pair, text: str) -> bool:
    """Whether source and translation have the same numbers, in the formats of their languages."""
    source, target = (sorted(number.value for number in side) for side in numbers.of_both((pair[0], text)))
    return source == target


def _phrases(languages: tuple[str, str]) -> list[Pair]:
    """Sentences of a phrase book, to be read; corpora may have some of them."""
    text = (resources.files(__package__) / "phrases.tsv").read_text(encoding="utf-8")
    pairs = [(english, french) for english, _, french in (line.partition("\t") for line in text.splitlines())]
    return pairs if languages == ("en", "fr") else [(french, english) for english, french in pairs]


def _numbers(languages: tuple[str, str]) -> list[Pair]:
    """Sentences of the templates, each with several numbers."""
    templates = tomllib.loads((resources.files(__package__) / "skills.toml").read_text(encoding="utf-8"))
    random, pairs = Random(2), []
    for form_name, sentences in templates.items():
        for english, french in sentences.items():
            for _ in range(PER_TEMPLATE):
                number = dict(zip(("en", "fr"), _number(form_name, random), strict=True))
                texts = {"en": english.format(number["en"]), "fr": french.format(number["fr"])}
                pairs.append((texts[languages[0]], texts[languages[1]]))
    return pairs


def _number(form_name: str, random: Random) -> Pair:
    """A number of a form in English and French."""
    large = random.randint(1_001, 9_999_999)
    tenths = f"{random.randint(2, 99)}.{random.randint(1, 9)}"
    price = random.choice((str(random.randint(2, 99)), f"{random.randint(2, 99)}.{random.randint(10, 99)}"))
    grouped = f"{random.randint(1_001, 99_999):,}.{random.randint(10, 99)}"
    english = {
        "integer": str(random.randint(2, 999)),
        "thousands": f"{large:,}",
        "decimal": tenths,
        "price": random.choice((price, grouped)),
        "time": f"{random.randint(2, 11)}:{random.randint(10, 59)}",
        "year": str(random.randint(1700, 2090)),
        "phone": "-".join(str(random.randint(100, 999)) for _ in range(2)) + str(random.randint(0, 9)),
        "percent": random.choice((str(random.randint(2, 99)), tenths)),
    }[form_name]
    if form_name in ("time", "phone"):
        return english, english.replace(":", "\u00a0h\u00a0")
    return english, english.translate(str.maketrans(",.", "\u202f,"))


@click.command()
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@options.data_folder
@click.option("--text", "as_text", is_flag=True, help="Translate as whole texts: split sentences, keep placeholders.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Also write the results with all outputs here.")
def main(models: tuple[Path, ...], data_dir: Path | None, as_text: bool, path: Path | None) -> None:
    """Measure MODELS, bundles or runs between English and French, skill by skill."""
    reports = {}
    for model in models:
        with open_translator(model, threads=1, truncate=True) as translator:
            reports[str(model)] = measure(translator, data_dir, as_text=as_text)
        rows = table(str(model), "skill", "sentences", "BLEU", "chrF", "kept")
        for name, row in reports[str(model)].items():
            kept = f"{row['kept']:.1%}" if "kept" in row else ""
            rows.add_row(name, str(row["sentences"]), f"{row['bleu']:.1f}", f"{row['chrf']:.1f}", kept)
        console().print(rows)
    if path is not None:
        with atomic_text(path) as file:
            file.write(json_text(reports))


if __name__ == "__main__":
    main()
