"""OPUS-MT's releases with BPE codes: text is prepared as their scripts do, or the release is refused."""

from __future__ import annotations

import io
import json
import shutil
import unicodedata
from functools import cache
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sacremoses", reason="the extra `moses` is not installed")

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from edgeformer.errors import ImporterError
from edgeformer.importers.marian.model import read_marian
from edgeformer.importers.read import read_model
from edgeformer.importers.registry import Given
from edgeformer.importers.run_folder import write_run
from edgeformer.quality.translators import open_translator
from edgeformer_runtime.bundle.tokenizer_file import checked_tokenizer
from edgeformer_runtime.tokenizer import Tokenizer
from tests.importers.marian_models import MARIAN, expected

SCRIPT = """#!/bin/bash
#
# USAGE preprocess.sh langid bpecodes < input > output
#
MOSESSCRIPTS=${PWD}/mosesdecoder/scripts
TOKENIZER=${MOSESSCRIPTS}/tokenizer
THREADS=4

${TOKENIZER}/replace-unicode-punctuation.perl |
${TOKENIZER}/remove-non-printing-char.perl |
${TOKENIZER}/normalize-punctuation.perl -l $1 |
${TOKENIZER}/tokenizer.perl -a -threads ${THREADS} -l $1 |
sed 's/  */ /g;s/^ *//g;s/ *$//g' |
python3 ${SNMTPATH}/apply_bpe.py -c $2
"""
"""What the releases of 2019 and 2020 have."""
EN_FR = Given(source_language="en", target_language="fr")
ROWS = 1504
UNUSUAL = [
    "It's a well-known state-of-the-art test -- isn't it?",
    "‘Quoted’ “text” „here“ … «là» (and [there] {too}).",
    "你好，世界！ 日本語の文。 한국어 문장 Ｆｕｌｌ１０",
    "He paid $5,300.50 (50 %) on 3.11.1999; e-mail a.b@c.de & http://example.org/a?b=1",
    "a\u0000b\u2028c\x1fd\u200be \ufeffzero\u00adsoft \ue000private",
    "हिन्दी में विराम, বাংলা ক্ষমা করুন",
    '"Said," he "wrote". He said "yes." <b>&amp;</b> | @-@ @@ wo@@ rd',
    ">>fra<< </s> <unk> <s>",
    "😀 👩‍👩‍👧 e\u0301 ½ ²",
    "",
]
PERL = {
    "It's a well-known state-of-the-art test -- isn't it?": (
        "It &apos;s a well @-@ known state @-@ of @-@ the @-@ art test -- isn &apos;t it ?"
    ),
    "Quoted’ “text” „here“ … «là» (and [there] {too}).": (
        "Quoted &apos; &quot; text &quot; &quot; here &quot; ... &quot; là &quot; ( and &#91; there &#93; { too } ) ."
    ),
    "你好，世界！ 日本語の文。 한국어 문장": "你好 , 世界 ! 日本語の文 . 한국어 문장",
    "हिन्दी में विराम": "हिन ् दी में विराम",
    '"Said," he "wrote". He said "yes."': "&quot; Said , &quot; he &quot; wrote . &quot; He said &quot; yes . &quot;",
    "a\u0000b\u200bc\u00add\ue000e": "a b c d e",
}
"""What Moses' own scripts print, in this order, for English."""


class Preprocessing:
    """The steps of the script, by sacremoses and subword-nmt. Perl knows more letters without case than sacremoses."""

    def __init__(self, source: str, target: str, codes: str) -> None:
        self._normalizer = MosesPunctNormalizer(source, perl_parity=True)
        if source not in {"en", "cs", "de", "es", "fr"}:  # Moses moves quotation marks in these, too
            self._normalizer.substitutions[-1:-1] = MosesPunctNormalizer("de").DE_ES_FR_QUOTATION_FOLLOWED_BY_COMMA
        self._tokenizer, self._detokenizer = MosesTokenizer(source), MosesDetokenizer(target)
        self._bpe = BPE(io.StringIO(codes))

    def words(self, text: str) -> str:
        text = self._normalizer.replace_unicode_punct(text)
        text = "".join(" " if unicodedata.category(character)[0] == "C" else character for character in text)
        words: str = self._tokenizer.tokenize(
            self._normalizer.normalize(text), aggressive_dash_splits=True, return_str=True
        )
        return words

    def tokens(self, text: str) -> list[str]:
        return str(self._bpe.process_line(self.words(text))).split()

    def text(self, tokens: list[str]) -> str:
        text: str = self._detokenizer.detokenize(" ".join(tokens).replace("@@ ", "").split(" "))
        return text


@cache
def sentences() -> list[str]:
    return [*UNUSUAL, *(case.source for case in expected("ssru")[:200])]


@cache
def learned() -> str:
    """BPE codes."""
    preparation = Preprocessing("en", "fr", "#version: 0.2\ne n\n")
    codes = io.StringIO()
    learn_bpe(io.StringIO("\n".join(map(preparation.words, sentences()))), codes, 300)
    return codes.getvalue()


def release(folder: Path, *, languages: tuple[str, ...] = (), script: str | None = SCRIPT) -> Path:
    """A release, with the weights of the committed model."""
    folder.mkdir()
    preparation = Preprocessing("en", "fr", learned())
    tokens = sorted({token for sentence in sentences() for token in preparation.tokens(sentence)})
    names = ["</s>", "<unk>", *(f">>{language}<<" for language in languages), *tokens[: ROWS - 60]]
    names += [f"word{number}" for number in range(ROWS - len(names))]
    vocabulary = "".join(f"{json.dumps(name, ensure_ascii=False)}: {index}\n" for index, name in enumerate(names))
    (folder / "opus.bpe32k-bpe32k.vocab.yml").write_text(vocabulary, encoding="utf-8")
    model = "opus.bpe32k-bpe32k.transformer.model1.npz.best-perplexity.npz"
    shutil.copyfile(MARIAN / "ssru" / "model.npz", folder / model)
    (folder / "decoder.yml").write_text(
        f"relative-paths: true\nmodels:\n  - {model}\nvocabs:\n"
        + "  - opus.bpe32k-bpe32k.vocab.yml\n" * 2
        + "beam-size: 6\n"
    )
    for side in ("source", "target"):
        (folder / f"{side}.bpe").write_text(learned(), encoding="utf-8")
    (folder / "source.tcmodel").touch()
    if script is not None:
        (folder / "preprocess.sh").write_text(script)
    return folder


def test_text_is_prepared_as_by_the_scripts(tmp_path: Path) -> None:
    found = read_model(release(tmp_path / "m"), None, source_language="en", target_language="fr")
    run = write_run(found.model, tmp_path / "run", found.origin, text=["Tom is here."])
    translator, preparation = open_translator(run.path), Preprocessing("en", "fr", learned())
    names = set(translator.source_tokenizer.tokens(range(translator.source_tokenizer.vocab_size)))
    special = {"</s>", "<unk>", "<s>"}
    for text in sentences():
        if not any(unicodedata.category(character) == "Lo" for character in text):
            tokens = preparation.tokens(text)
            ids = translator.source_tokenizer.encode(text)
            wanted = [token if token in names - special else "<unk>" for token in tokens]
            assert (text, translator.source_tokenizer.tokens(ids)) == (text, wanted)
    translations = translator.translate(sentences()[:40], max_length=12)
    for translation in translations:
        tokens = translator.target_tokenizer.tokens(translation.best.ids)
        assert translation.text == preparation.text([token for token in tokens if token not in special])
    assert found.importer == "marian"
    assert {"source.bpe", "target.bpe"} <= found.model.hashes.keys()


def test_words_are_those_of_the_perl_scripts(tmp_path: Path) -> None:
    imported = read_marian(release(tmp_path / "m"), EN_FR)
    codes = tmp_path / "m" / "source.bpe"
    codes.write_text("#version: 0.2\nqq qq\n", encoding="utf-8")  # which divides words into characters
    whole = read_marian(tmp_path / "m", EN_FR)
    assert isinstance(imported.source_tokenizer, str)
    assert checked_tokenizer(imported.source_tokenizer.encode()) == imported.source_tokenizer
    tokenizer = Tokenizer.from_content(whole.source_tokenizer, "t.json", whole.text)
    for text, words in PERL.items():
        assert " ".join(tokenizer.pieces(text)).replace("@@ ", "") == words


@pytest.mark.parametrize("language", ["it", "fi", "pt", "cs", "de"])
def test_quotation_marks_are_moved_in_all_languages_but_czech(language: str, tmp_path: Path) -> None:
    given = Given(source_language=f"{language}-Latn", target_language="en")
    imported = read_marian(release(tmp_path / "m"), given)
    tokenizer = Tokenizer.from_content(imported.source_tokenizer, "t.json", imported.text)
    text = 'Er "sagte," und "schrieb." Dann'
    assert tokenizer.pieces(text) == Preprocessing(language, "en", learned()).tokens(text)


def test_target_languages_are_chosen_by_a_token(tmp_path: Path) -> None:
    given = Given(source_language="en", target_language="fr")
    imported = read_marian(release(tmp_path / "m", languages=("fra", "ita")), given)
    tokenizer = Tokenizer.from_content(imported.source_tokenizer, "t.json", imported.text).for_sources("en", "it")
    (ids,) = tokenizer.encode_batch([">>fra<< Tom"], special_tokens=True)
    tokens = tokenizer.tokens(ids)
    assert (tokens[0], tokens[-1]) == (">>ita<<", "</s>")
    assert ">>fra<<" not in tokens


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "how it was tokenized is not known"),
        ("", "how it was tokenized is not known"),
        (SCRIPT.replace("tokenizer.perl -a", "tokenizer.perl"), "how it was tokenized is not known"),
        (SCRIPT.replace("tokenizer.perl -a", "tokenizer.perl -a -no-escape"), "how it was tokenized is not known"),
        (SCRIPT.replace("apply_bpe.py", "segment.py"), "how it was tokenized is not known"),
        (SCRIPT.replace("python3", "${TOKENIZER}/lowercase.perl | python3"), "how it was tokenized is not known"),
    ],
)
def test_other_preparations_are_refused(script: str | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(ImporterError, match=message):
        read_marian(release(tmp_path / "m", script=script), EN_FR)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    folder = release(tmp_path / "m")
    with pytest.raises(ImporterError, match="state them with --source-language and --target-language"):
        read_marian(folder)
    (folder / "source.tcmodel").write_text("the (1/2) The (2)")
    with pytest.raises(ImporterError, match=r"source\.tcmodel` changes the case of words"):
        read_marian(folder, EN_FR)
    for side in ("source", "target"):
        (folder / f"{side}.bpe").unlink()
    with pytest.raises(ImporterError, match=r"parts of words, such as `.*@@`, but there is no tokenizer beside it"):
        read_marian(folder, EN_FR)
