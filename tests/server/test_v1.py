"""The server's own API: options, scores, alignments, streams, and errors that are always JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given

from edgeformer_runtime import Translator
from edgeformer_server.settings import BatchLimits
from edgeformer_text import TextTranslator
from tests.amounts import combinations, examples
from tests.server.http import Answer, Client, serving
from tests.server.test_workspace import bundle_between
from tests.text.test_markup import ANY_HTML

TEXTS = ["The old dog runs.", "two men play\n\nA café, 14 times!", "", "7"]


def ask(client: Client, **fields: Any) -> Answer:
    return client.json("/v1/translate", {"texts": TEXTS, "source": "en", "target": "fr", **fields})


def events(answer: Answer) -> list[tuple[str, Any]]:
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = [part.split("\n") for part in answer.body.decode().split("\n\n") if part]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


def test_texts_are_translated_with_options_and_scores(client: Client, translator: Translator) -> None:
    options: dict[str, Any] = {"beam_size": 3, "n_best": 2, "length_penalty": 0.5}
    answer = ask(client, options=options, scores=True).json
    assert (answer["source"], answer["target"], answer["models"]) == ("en", "fr", ["en-fr"])
    first, second, empty, number = answer["translations"]
    text_translator = TextTranslator(translator)
    decoding = text_translator.decoding(**options)
    (expected,) = translator.translate(TEXTS[:1], decoding)
    best = expected.best
    plan = text_translator.split(TEXTS[0])
    texts = [
        plan.join([replace(expected, hypotheses=(one,))], translator.translate).text for one in expected.hypotheses
    ]
    assert [first["text"], *first["alternatives"]] == texts
    (sentence,) = first["sentences"]
    assert sentence["source"] == [0, len(TEXTS[0])]
    assert sentence["target"] == [0, len(texts[0])]
    assert sentence["score"] == pytest.approx(best.score, abs=1e-5)
    assert best.token_scores
    mean = sum(best.token_scores) / len(best.token_scores)
    assert sentence["confidence"] == pytest.approx(math.exp(mean), abs=1e-5)
    assert [TEXTS[1][slice(*sentence["source"])] for sentence in second["sentences"]] == TEXTS[1].split("\n\n")
    for sentence in second["sentences"]:
        (alone,) = text_translator.translate([TEXTS[1][slice(*sentence["source"])]], options=decoding)
        assert second["text"][slice(*sentence["target"])] == alone.text
    assert (empty["text"], number["text"]) == ("", "7")
    assert not empty["sentences"]
    assert set(number["sentences"][0]) == {"source", "target"}
    (wrong,) = ask(client, texts=["The machine 5 and 6."]).json["translations"][0]["sentences"]
    assert wrong["wrong_numbers"] == ["14"]


def test_words_are_aligned_by_attention(client: Client) -> None:
    (text,) = ask(client, texts=["  The old dog runs."], alignments=True).json["translations"]
    words = text["sentences"][0]["words"]
    assert words
    for word in words:
        source, target = "  The old dog runs."[slice(*word["source"])], text["text"][slice(*word["target"])]
        assert source in ("The", "old", "dog", "runs", ".")
        assert target in re.findall(r"\w+|[^\w\s]", text["text"])
    places = [word["target"] for word in words]
    assert places == sorted(places)
    assert len({tuple(word["source"]) for word in words}) > 1


@pytest.mark.parametrize("text", ["You have {n, plural, one {# dog} other {# dogs}} in the sea.", "{n} <b>1 & 2</b>"])
def test_words_of_a_message_are_aligned(client: Client, text: str) -> None:
    answer = ask(client, texts=[text], alignments=True)
    assert answer.status == 200
    (translation,) = answer.json["translations"]
    spans = [word["target"] for sentence in translation["sentences"] for word in sentence["words"]]
    assert spans == sorted(spans)
    assert spans[-1][1] <= len(translation["text"])


def test_terms_of_a_glossary_are_realized(client: Client) -> None:
    text = ask(client, texts=["The old dog runs."], glossary={"dog": "toutou"}).json["translations"][0]["text"]
    assert "toutou" in text
    chained = ask(client, texts=["Der Hund."], source="de", glossary={"Hund": "toutou"})
    assert (chained.status, "translates the pair directly" in chained.error) == (400, True)
    assert ask(client, glossary={" ": "x"}).status == 400
    assert "of plain text" in ask(client, alignments=True, format="html").error


def test_a_stream_has_the_tokens_of_greedy_search(client: Client, translator: Translator) -> None:
    received = events(ask(client, texts=TEXTS[:2], stream=True))
    tokens = [event for name, event in received if name == "token"]
    steps = list(translator.translate_tokens(TEXTS[0]))
    own = [event for event in tokens if event["text"] == 0]
    assert [event["token"] for event in own] == [step.token for step in steps]
    assert [event["partial"] for event in own] == [step.text for step in steps]
    assert own[-1]["is_last"]
    texts = [event["translation"] for name, event in received if name == "text"]
    plain = ask(client, texts=TEXTS[:2], options={"beam_size": 1}).json["translations"]
    assert texts == [text["text"] for text in plain]
    assert {event["sentence"] for event in tokens if event["text"] == 1} == {0, 1}
    assert received[-1] == ("done", {})


def test_streams_go_through_a_third_language(client: Client) -> None:
    received = events(ask(client, texts=["Der Hund."], source="de", stream=True))
    plain = ask(client, texts=["Der Hund."], source="de", options={"beam_size": 1}).json
    assert plain["models"] == ["de-en", "en-fr"]
    assert received[-2][1]["translation"]
    wrong = ask(client, stream=True, options={"beam_size": 4})
    assert (wrong.status, "can be streamed only" in wrong.error) == (400, True)


def test_streams_take_turns(small_bundle: Path) -> None:
    with serving(small_bundle, max_streams=1) as client:
        with client.open(
            "/v1/translate", {"texts": ["A dog."] * 500, "source": "en", "target": "fr", "stream": True}
        ) as first:
            assert first.readline() == b"event: token\n"
            assert ask(client, stream=True, timeout=0.05).status == 504
            assert ask(client, texts=["A dog."]).status == 200
        assert events(ask(client, stream=True))[-1][0] == "done"


@combinations(
    changes=[{}, {"replace_unknowns": True}, {"min_length": 12}, {"sampling_topk": 5}],
    document=[
        ("text", "The old dog runs. Two men play 14 times.\n\n- a café"),
        ("text", "  "),
        ("html", "The <b>old</b> dog <i>runs in the <u>snow</u></i>. <br>Two <a href='x'>men</a> play chess."),
        ("html", "<p title='two men'>The dog <img src='x'> runs.</p><pre>1 2 3</pre>"),
    ],
)
def test_a_streamed_text_equals_one_that_is_not(
    client: Client, document: tuple[str, str], changes: dict[str, Any]
) -> None:
    """With the attention that places tags and replaces unknown tokens, and without the end token among the others."""
    format, text = document
    options = {"beam_size": 1, **changes}
    (plain,) = ask(client, texts=[text], format=format, options=options).json["translations"]
    received = events(ask(client, texts=[text], format=format, options=options, stream=True))
    assert [event["translation"] for name, event in received if name == "text"] == [plain["text"]]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"beam_size": 5}, "`beam_size` must be at most 4 on this server, but is 5"),
        ({"n_best": 10, "return_alternatives": True}, "`n_best` must be at most 9 on this server, but is 10"),
        ({"min_length": 21}, "`min_length` must be at most 20 on this server, but is 21"),
        ({"max_length": 500}, "`max_length` must be at most 20 on this server, but is 500"),
    ],
)
def test_a_request_cannot_ask_for_more_work_than_the_server_permits(
    limited: Client, options: dict[str, Any], error: str
) -> None:
    answer = ask(limited, options=options)
    assert (answer.status, error in answer.error) == (400, True)


@pytest.fixture(scope="module")
def limited(small_bundle: Path) -> Iterator[Client]:
    with serving(small_bundle, max_beam=4, max_output_tokens=20, max_sentences=3) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_has_a_limited_number_of_sentences_and_tokens(limited: Client, stream: bool) -> None:
    few = ask(limited, texts=["A dog.\nA dog.\nA dog."], stream=stream, options={"beam_size": 1})
    many = ask(limited, texts=["A dog.\nA dog.", "A dog.\nA dog."], stream=stream, options={"beam_size": 1})
    assert few.status == 200
    assert (many.status, "There are more than 3 sentences" in many.error) == (400, True)
    long = ask(limited, texts=["The old dog runs."], stream=True, options={"min_length": 20, "beam_size": 1})
    assert len([event for name, event in events(long) if name == "token"]) == 20


def test_models_are_listed_and_chosen_by_name(client: Client) -> None:
    models = client.get("/v1/models").json["models"]
    assert [model["name"] for model in models] == ["de-en", "en-fr"]
    assert models[1]["sources"] == ["en"]
    assert models[1]["precision"] == "fp32"
    assert models[1]["has_attention"] is True
    named = client.json("/v1/translate", {"texts": TEXTS[:1], "model": "en-fr"}).json
    assert client.get("/v1/models").json["models"][1]["is_open"] is True
    assert (named["source"], named["target"], named["models"]) == ("en", "fr", ["en-fr"])
    detected = ask(client, texts=["Der alte Hund rennt durch den tiefen Schnee."], source="auto").json
    assert detected["source"] == "de"
    german = {"texts": ["Der alte Hund rennt durch den tiefen Schnee."], "model": "de-en", "source": "auto"}
    assert client.json("/v1/translate", german).json["target"] == "en"


def test_texts_that_are_in_the_target_language_are_returned_unchanged(small_bundle: Path, tmp_path: Path) -> None:
    for name in ("en-fr", "fr-en"):
        bundle_between(small_bundle, tmp_path, name, *name.split("-"))
    with serving(tmp_path) as client:
        for source in ("en", "auto"):
            answer = ask(client, texts=["The old dog runs to the house."], source=source, target="en", alignments=True)
            unchanged = {"text": "The old dog runs to the house.", "sentences": []}
            assert answer.json == {"translations": [unchanged], "source": "en", "target": "en", "models": []}
        streamed = events(ask(client, target="en", stream=True))
        texts = [("text", {"text": number, "translation": text}) for number, text in enumerate(TEXTS)]
        assert streamed == [*texts, ("done", {})]
        assert ask(client, source="xx", target="xx").error == "Invalid request: No model translates from `xx` to `xx`."
        assert [model["is_open"] for model in client.get("/v1/models").json["models"]] == [False, False]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"texts": "one"}, "Expected `array`, got `str` - at `$.texts`"),
        ({"texts": []}, "Expected `array` of length >= 1 - at `$.texts`"),
        ({"texts": [1]}, "Expected `str`, got `int` - at `$.texts[0]`"),
        ({"what": 1}, "Object contains unknown field `what`"),
        ({"options": {"beam_size": 0}}, "Expected `int` >= 1 - at `$.options.beam_size`"),
        ({"options": {"beam_size": True}}, "Expected `int`, got `bool` - at `$.options.beam_size`"),
        ({"options": {"beam_size": 2, "n_best": 3}}, "`n_best` must be at most `beam_size` (2), but is 3."),
        ({"options": {"max_batch_tokens": 9}}, "Object contains unknown field `max_batch_tokens` - at `$.options`"),
        ({"options": {"repetition_penalty": 5e-324}}, "Expected `float` >= 0.01 - at `$.options.repetition_penalty`"),
        ({"format": "docx"}, "Invalid enum value 'docx' - at `$.format`"),
        ({"target": ""}, "give `target`, or a `model`."),
        ({"target": "xx"}, "No model translates from `en` to `xx`."),
        ({"model": "none"}, "There is no model `none`; the models are de-en, en-fr."),
        ({"model": "de-en"}, "The model `de-en` does not translate from `en` to `fr`."),
        ({"timeout": -1}, "Expected `float` > 0.0 - at `$.timeout`"),
    ],
)
def test_wrong_requests_get_one_clear_sentence(client: Client, fields: dict[str, Any], error: str) -> None:
    answer = ask(client, **fields)
    assert answer.status == 400
    assert answer.error.startswith(f"Invalid request: {error}")


@examples(30, 200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=ANY_HTML)
def test_every_html_is_translated(client: Client, document: str) -> None:
    own = ask(client, texts=[document, "<p>A dog.</p>"], format="html", scores=True)
    assert own.status == 200
    first, second = (text["text"] for text in own.json["translations"])
    assert second.startswith("<p>")
    if document:
        other = client.json("/translate", {"q": document, "source": "en", "target": "fr", "format": "html"})
        assert other.json == {"translatedText": first}


def test_concurrent_requests_of_all_kinds_share_batches_and_get_what_each_gets_alone(folder: Path) -> None:
    requests: list[tuple[str, dict[str, Any]]] = []
    for index in range(12):
        texts = [f"The old dog runs {index} times.", *TEXTS[: index % 5]]
        options = [{}, {"beam_size": 1}, {"n_best": 2}, {"beam_size": 3, "n_best": 3}][index % 4]
        source = ("en", "de")[index % 2]
        requests.append(("/v1/translate", {"texts": texts, "source": source, "target": "fr", "options": options}))
        requests.append(("/translate", {"q": texts, "source": source, "target": "fr", "alternatives": index % 3}))
    with serving(folder, batch=BatchLimits(max_sentences=16, delay=0.05)) as client:
        alone = [client.json(path, body).body for path, body in requests]
        with ThreadPoolExecutor(len(requests)) as pool:
            together = list(pool.map(lambda request: client.json(*request).body, requests))
        metrics = client.get("/metrics").body.decode()
    assert together == alone
    (batches, requests_of_batches) = (
        float(re.findall(rf'^edgeformer_batch_requests_{name}{{model="en-fr"}} (\S+)', metrics, re.MULTILINE)[0])
        for name in ("count", "sum")
    )
    assert requests_of_batches > batches


def test_an_alternative_of_a_text_has_that_of_each_sentence_or_its_last(client: Client) -> None:
    sentences, options = ["The old dog runs.", "7", "Two men play chess."], {"beam_size": 3, "n_best": 3}
    alone = [
        [text["text"], *text.get("alternatives", [])]
        for text in ask(client, texts=sentences, options=options).json["translations"]
    ]
    assert len({len(ranks) for ranks in alone}) > 1
    (together,) = ask(client, texts=["\n".join(sentences)], options=options).json["translations"]
    expected = ["\n".join(ranks[min(rank, len(ranks) - 1)] for ranks in alone) for rank in range(max(map(len, alone)))]
    assert [together["text"], *together["alternatives"]] == expected
