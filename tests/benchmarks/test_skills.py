"""The study of quality by skill."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from edgeformer.data.text import Pair
from edgeformer_bench.studies import skills as module
from edgeformer_bench.studies.skills import Skill, skills


@dataclass
class Corpus:
    test: list[Pair]


@pytest.fixture(params=[("en", "fr"), ("fr", "en")], ids="-".join)
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Skill]:
    source_language, target_language = request.param
    pairs = [(f"Tom's cat number {n} is here.", f"Le chat numéro {n} de Tom est là.") for n in range(2, 400)]
    pairs += [("Go!", "Va !"), ("I am very tired.", "Je suis très fatigué.")]
    if source_language == "fr":
        pairs = [(french, english) for english, french in pairs]
    monkeypatch.setattr(module, "load_corpus", lambda config, data_dir: Corpus(list(pairs)))
    return {skill.name: skill for skill in skills(source_language, target_language, None)}


def test_references_have_what_must_be_kept(made: dict[str, Skill]) -> None:
    for name in ("numbers", "names", "placeholders"):
        skill = made[name]
        assert skill.kept is not None
        assert len(skill.pairs) >= 200
        assert all(skill.kept(pair, pair[1]) for pair in skill.pairs), name
        assert not any(skill.kept(pair, "Not so.") for pair in skill.pairs), name


def test_sets_have_what_their_names_say(made: dict[str, Skill]) -> None:
    assert len(made["phrase book"].pairs) == 200
    assert all(source.islower() for source, _ in made["lowercase"].pairs)
    assert all(source.isupper() for source, _ in made["uppercase"].pairs)
    assert not any(source.endswith((".", "!", "?")) for source, _ in made["unpunctuated"].pairs)
    assert {source for source, _ in made["short"].pairs} == {
        next(pair[0] for pair in made["tatoeba"].pairs if pair[0].startswith(source))
        for source, _ in made["short, unpunctuated"].pairs
    }
    assert made["short"].scored("Va\u202f!") == made["short"].scored("Va") == "Va"
