"""The named corpora: their descriptions, origins and pinned files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

_MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1"
_MULTI30K_LICENSE = "none stated; the captioned images are for non-commercial research"
_CLDR_LICENSE = "Unicode License v3 (CLDR)"
_TATOEBA_LICENSE = "CC-BY 2.0 FR, attribution: Tatoeba"

# SHA-256 of the decompressed text.
_MULTI30K_SHA256 = {
    "train.en": "460a15fbd157e34a7a9957ee388c1ca247fe47af3ef25fb50442af6c274e0fc6",
    "train.de": "2c2b73fd2b548fbcde3a875e0a78d6ee94d498bfdee6bd3eae3945779e9ddf72",
    "train.fr": "5925a3c18f1587b6b54b87743106e6e8ab93618edb6f65d19eac0621f853a10d",
    "val.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "val.de": "660e09eb7e1da2f856ea13ee5ad3cf6d36b3d5b0b733c857e94c5747a3dfc660",
    "val.fr": "5304e444d842e962b2dda4d816b70b22a1765b15401642b7ca37a67477e708dc",
    "test_2016_flickr.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "test_2016_flickr.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "test_2016_flickr.fr": "cb3160d69b002bb638e66cc7612fcd56cb0af82eadc9c142dedc438afb885ef6",
    "train.lc.norm.tok.en": "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    "train.lc.norm.tok.de": "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    "train.lc.norm.tok.fr": "8fa41bb718412bcb7c5dfa58603842810a01543eae86a51279f9886b901266e1",
    "val.lc.norm.tok.en": "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    "val.lc.norm.tok.de": "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    "val.lc.norm.tok.fr": "b303e301aa21fe7822a846b2b3fb2d5a1121ec807cd5b1d006fb7b2b5507168a",
    "test_2016_flickr.lc.norm.tok.en": "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    "test_2016_flickr.lc.norm.tok.de": "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    "test_2016_flickr.lc.norm.tok.fr": "1463bd5960f9bfe098ec3cd752d3df0c49c84dc646fb518964a29232658cd836",
}


@dataclass(frozen=True, kw_only=True)
class PinnedFile:
    """A file of a corpus, identified by its hash."""

    folder: str
    """Subfolder of the cache folder and, optionally, of the data folder."""
    name: str
    """File name without ``.gz``; a local file may have this suffix or not."""
    url: str
    """Address to download it from."""
    sha256: str
    """SHA-256 of the content after gzip decompression, or of the zip archive itself."""
    member: str = ""
    """Path of the text file inside a zip archive."""


@dataclass(frozen=True, kw_only=True)
class CorpusEntry:
    """One named corpus."""

    name: str
    """The value of ``data.corpus`` in a recipe."""
    description: str
    """One line for humans."""
    source_language: str
    """BCP 47 tag."""
    target_language: str
    """BCP 47 tag."""
    license: str
    """License as the corpus states it."""
    pairs: int
    """Number of sentence pairs before filtering, over all parts."""
    origin: str
    """Address for humans, or how the corpus is generated."""
    train: tuple[PinnedFile, ...] = ()
    """Two aligned files or one tab-separated file; empty for a generated corpus."""
    valid: tuple[PinnedFile, ...] = ()
    """The corpus's own validation files; split from ``train`` if empty."""
    test: tuple[PinnedFile, ...] = ()
    """The corpus's own test files; split from ``train`` if empty."""
    target_first: bool = False
    """The files have the target language first."""
    tokenized: bool = False
    """The text is already tokenized, so BLEU must not tokenize it again."""


def _multi30k(target: Literal["de", "fr"], *, tokenized: bool) -> CorpusEntry:
    infix, folder, suffix = (".lc.norm.tok", "tok", "") if tokenized else ("", "raw", ".gz")

    def files(part: str) -> tuple[PinnedFile, ...]:
        names = (f"{part}{infix}.{language}" for language in ("en", target))
        return tuple(
            PinnedFile(
                folder="multi30k",
                name=name,
                url=f"{_MULTI30K_URL}/{folder}/{name}{suffix}",
                sha256=_MULTI30K_SHA256[name],
            )
            for name in names
        )

    form = "lowercased, normalized and tokenized by its authors" if tokenized else "raw text"
    return CorpusEntry(
        name=f"multi30k-en-{target}{'-tok' if tokenized else ''}",
        description=f"Multi30k task 1, image captions, {form}; test2016",
        source_language="en",
        target_language=target,
        license=_MULTI30K_LICENSE,
        pairs=31_014,
        origin="https://github.com/multi30k/dataset",
        train=files("train"),
        valid=files("val"),
        test=files("test_2016_flickr"),
        tokenized=tokenized,
    )


def _tatoeba(
    language: Literal["de", "fr"], *, archive: str, member: str, sha256: str, pairs: int
) -> tuple[CorpusEntry, CorpusEntry]:
    """Return the corpus from English, and that to English."""
    file = PinnedFile(
        folder="tatoeba", name=archive, url=f"https://www.manythings.org/anki/{archive}", sha256=sha256, member=member
    )
    from_english = CorpusEntry(
        name=f"tatoeba-en-{language}",
        description="Tatoeba, short everyday sentences; split by source sentence",
        source_language="en",
        target_language=language,
        license=_TATOEBA_LICENSE,
        pairs=pairs,
        origin="https://www.manythings.org/anki/",
        train=(file,),
    )
    return from_english, _reversed(from_english)


def _reversed(corpus: CorpusEntry) -> CorpusEntry:
    """The same corpus in the other direction."""
    source, target = corpus.source_language, corpus.target_language
    return replace(
        corpus,
        name=corpus.name.removesuffix(f"{source}-{target}") + f"{target}-{source}",
        source_language=target,
        target_language=source,
        target_first=not corpus.target_first,
    )


_DATES = CorpusEntry(
    name="dates-en-fr",
    description="Dates, times, numbers, currencies and units as CLDR writes them; generated, no download",
    source_language="en",
    target_language="fr",
    license=_CLDR_LICENSE,
    pairs=60_000,
    origin="generated with Babel from https://cldr.unicode.org",
)

CORPORA = MappingProxyType(
    {
        corpus.name: corpus
        for corpus in (
            _DATES,
            _multi30k("de", tokenized=False),
            _multi30k("de", tokenized=True),
            _multi30k("fr", tokenized=False),
            _multi30k("fr", tokenized=True),
            *_tatoeba(
                "de",
                archive="deu-eng.zip",
                member="deu.txt",
                sha256="71750f704aeb6b0a01fe57341c3051b9efd98f63b61ee266b2c2283d1b80cb71",
                pairs=169_197,
            ),
            *_tatoeba(
                "fr",
                archive="fra-eng.zip",
                member="fra-eng/fra.txt",
                sha256="161c93f18da3a7e6df611ed961426613260de8af06ccf8c79c977afe5135ac44",
                pairs=167_130,
            ),
        )
    }
)
"""All named corpora, by name."""
