"""LibreTranslate's API, asked by its own client and by plain requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from libretranslatepy import LibreTranslateAPI

from edgeformer_runtime import Translator
from edgeformer_server.request import MAX_TAGS
from edgeformer_text import TextTranslator
from edgeformer_text.documents.files import SUFFIXES
from edgeformer_text.results import plausible
from tests.bundles import edit_manifest
from tests.server.http import Answer, Client, serving
from tests.server.test_workspace import bundle_between

TEXT = "The old dog runs."
BUNDLES = ("de-en", "en-fr", "fr-en", "en-zh")


def translated(translator: Translator, *texts: str, **changes: Any) -> list[str]:
    return [translation.text for translation in TextTranslator(translator).translate(texts, **changes)]


def pair(**fields: Any) -> dict[str, Any]:
    return {"q": TEXT, "source": "en", "target": "fr", **fields}


def test_the_client_of_libretranslate_works(client: Client, translator: Translator) -> None:
    api = LibreTranslateAPI(client.url)
    assert api.translate(TEXT, "en", "fr") == translated(translator, TEXT)[0]
    assert api.languages()[1] == {"code": "en", "name": "English", "targets": ["fr", "zh-Hans"]}
    best = api.detect("Bonjour tout le monde, comment allez-vous ?")[0]
    assert best["language"] == "fr"
    assert 90 < best["confidence"] <= 100


def test_json_and_form_get_the_same_answer(client: Client) -> None:
    answers = [
        client.json("/translate", pair()),
        client.form("/translate", **pair()),
        client.form(f"/translate?q={quote(TEXT)}", **pair(q="no")),
    ]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert [answer.json for answer in answers] == [answers[0].json] * 3
    assert set(answers[0].json) == {"translatedText"}
    assert answers[0].headers["content-type"] == "application/json"


def test_forms_are_utf_8_escaped_or_not(client: Client, translator: Translator) -> None:
    def sent(form: bytes) -> Answer:
        return client.ask("/translate", form, content_type="application/x-www-form-urlencoded")

    text = "Un chien très grand, à l'été."
    (expected,) = translated(translator, text)
    for escaped in (quote(text).encode(), text.encode()):  # curl -d sends the second
        assert sent(b"source=en&target=fr&q=" + escaped).json == {"translatedText": expected}
    for latin in (b"tr%E8s", b"tr\xe8s"):
        assert sent(b"source=en&target=fr&q=" + latin).error == "Invalid request: the form is not UTF-8"
    assert sent(b"source=en&target=en&q=one&q=two").json == {"translatedText": "one"}
    assert "not valid (Max number of fields exceeded)" in sent(b"a=1&" * 100).error


def test_lists_become_lists(client: Client, translator: Translator) -> None:
    texts = [TEXT, "two men play", "14 !"]
    answer = client.json("/translate", pair(q=texts, source="auto", alternatives=2)).json
    assert answer["translatedText"] == [*translated(translator, *texts[:2], n_best=3, return_alternatives=True), "14 !"]
    assert [detected["language"] for detected in answer["detectedLanguage"]] == ["en"] * 3
    assert [isinstance(others, list) for others in answer["alternatives"]] == [True] * 3
    assert answer["alternatives"][2] == []
    single = client.json("/translate", pair(q=[TEXT])).json
    assert single == {"translatedText": translated(translator, TEXT)}


def test_lines_keep_their_places(client: Client, translator: Translator) -> None:
    first, second = translated(translator, TEXT, "two men play")
    answer = client.json("/translate", pair(q=f"  {TEXT}\n\n\t two men play\n❤️ 7\n")).json
    assert answer["translatedText"] == f"  {first}\n\n\t {second}\n❤️ 7\n"
    answer = client.form("/translate", **pair(q=f"{TEXT}\r\ntwo men play")).json
    assert answer["translatedText"] == f"{first}\n{second}"


def test_alternatives_differ_from_the_translation_and_each_other(client: Client, translator: Translator) -> None:
    text_translator = TextTranslator(translator)
    (translation,) = translator.translate([TEXT], text_translator.decoding(n_best=4, return_alternatives=True))
    plan = text_translator.split(TEXT)
    kept = plausible(translation).hypotheses
    texts = [plan.join([replace(translation, hypotheses=(one,))], translator.translate).text for one in kept]
    answer = client.form("/translate", **pair(alternatives="3")).json
    assert [answer["translatedText"], *answer["alternatives"]] == list(dict.fromkeys(texts))
    assert answer["alternatives"]
    assert "alternatives" not in client.form("/translate", **pair(alternatives="0")).json
    assert "alternatives" not in client.form("/translate", **pair(alternatives="-1")).json


def test_the_source_language_is_detected(client: Client) -> None:
    text = "Der alte Hund rennt durch den tiefen Schnee."
    answer = client.json("/translate", {"q": text, "source": "auto", "target": "en"}).json
    assert answer["detectedLanguage"]["language"] == "de"
    assert 90 < answer["detectedLanguage"]["confidence"] <= 100
    html = f'<div class="The english weather is nice today"><b>{text}</b></div>'
    answer = client.json("/translate", {"q": html, "source": "auto", "target": "en", "format": "html"}).json
    assert answer["detectedLanguage"]["language"] == "de"
    spanish = "El perro viejo corre por la nieve profunda y ladra toda la noche."
    for path, body in (("/translate", {"q": spanish}), ("/v1/translate", {"texts": [spanish]})):
        refused = client.json(path, {**body, "source": "auto", "target": "fr"})
        assert (refused.status, refused.error) == (
            400,
            "The text seems to be Spanish, which is not supported; choose its language if it is not",
        )
        assert client.json(path, {**body, "source": "en", "target": "fr"}).status == 200
    assert client.json("/translate", {"q": "{name} 14", "source": "auto", "target": "fr"}).status == 200
    answer = client.json("/translate", {"q": "🙂 14", "source": "auto", "target": "fr"}).json
    assert answer == {"translatedText": "🙂 14", "detectedLanguage": {"confidence": 0.0, "language": "en"}}


def test_a_language_of_two_codes_is_listed_once(small_bundle: Path, tmp_path: Path) -> None:
    path = bundle_between(small_bundle, tmp_path, "many", "", "")
    codes = {"eng_Latn": "a", "fra_Latn": "b", "awa_Deva": "c", "en": "a", "fr": "b"}
    prefixes = {"source_prefix": ["{source_language}"], "target_prefix": ["{target_language}"]}
    edit_manifest(path, lambda tree: tree.update(text={"languages": codes, **prefixes}))
    with serving(path) as client:
        listed = {language["code"]: language["targets"] for language in client.get("/languages").json}
        assert listed == {"en": ["awa_Deva", "fr"], "fr": ["awa_Deva", "en"], "awa_Deva": ["en", "fr"]}
        assert client.context.service.workspace.catalog().route("eng_Latn", "fr")


def test_languages_are_found_by_their_tags(client: Client, translator: Translator) -> None:
    expected = client.json("/translate", pair()).json
    for source, target in (("en-US", "fr-CA"), ("eng_Latn", "fra"), ("EN", "fr_FR")):
        assert client.json("/translate", pair(source=source, target=target)).json == expected
        for model in ("", "en-fr"):
            body = {"texts": [TEXT], "source": source, "target": target, "model": model}
            answer = client.json("/v1/translate", body).json
            assert (answer["source"], answer["target"]) == ("en", "fr")
    wrong = client.json("/v1/translate", {"texts": [TEXT], "source": "en", "target": "de-CH", "model": "en-fr"})
    assert (wrong.status, "does not translate" in wrong.error) == (400, True)


def test_languages_are_chained_aliased_and_equal_ones_are_copied(client: Client, translator: Translator) -> None:
    (english,) = translated(translator, "Der Hund.")
    answer = client.json("/translate", {"q": "Der Hund.", "source": "de", "target": "fr"}).json
    assert answer["translatedText"] == translated(translator, english)[0]
    codes = ("zh", "zh-Hans", "ZH-hans")
    answers = [client.json("/translate", pair(target=code)) for code in codes]
    assert [answer.status for answer in answers] == [200] * 3
    assert client.json("/translate", pair(target="en")).json == {"translatedText": TEXT}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"target": "zz"}, "zz is not supported"),
        ({"source": "ZZ"}, "zz is not supported"),
        ({"format": "pdf"}, "pdf format is not supported"),
        ({"source": "fr", "target": "de"}, "German (de) is not available as a target language from French (fr)"),
        ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 9}, "Invalid request: alternatives parameter must be <= 8"),
        ({"alternatives": [1]}, "Invalid request: alternatives parameter is not a number"),
        (
            {"q": "<b>" * (MAX_TAGS + 1), "format": "html"},
            "Invalid request: there are more than 50,000 tags; send less at a time, or a file",
        ),
        ({"q": ["a"] * 513}, "Invalid request: request (513) exceeds text limit (512)"),
        ({"q": [TEXT, 3]}, "Invalid request: q parameter must be a string or a list of strings"),
        ({"source": 5}, "Invalid request: source parameter must be a string"),
    ],
)
def test_errors_are_those_of_libretranslate(client: Client, fields: dict[str, Any], error: str) -> None:
    answer = client.json("/translate", pair(**fields))
    assert (answer.status, answer.error) == (400, error)


def test_json_that_is_not_an_object_is_refused(client: Client) -> None:
    for body in (b"", b"{", b"[1]", b'"text"', b"\xff", b"[" * 100_000, b'{"q": "\\ud800"}'):
        answer = client.ask("/translate", body, content_type="application/json")
        assert (answer.status, answer.error) == (400, "Invalid JSON format")
    assert client.form("/translate").error == "Invalid request: missing q parameter"
    broken = client.ask("/translate", b"--x", content_type="multipart/form-data")
    assert broken.status == 400
    assert broken.error.startswith("Invalid request: the form is not valid")


def test_methods_that_an_endpoint_lacks_are_refused(client: Client) -> None:
    assert {client.get(path).status for path in ("/translate", "/detect", "/translate_file")} == {405}
    assert {client.form(path, q="x").status for path in ("/languages", "/health", "/spec")} == {405}
    assert client.get("/detect").error == "Method Not Allowed"
    for path in ("/nothing", "/suggest"):
        missing = client.form(path, q="x", s="y", source="en", target="fr")
        assert (missing.status, missing.error) == (404, "Not Found")


def test_detection(client: Client) -> None:
    assert client.form("/detect", q="The weather is nice today").json[0]["language"] == "en"
    texts = ["Guten Morgen, meine Damen", "Wie geht es Ihnen heute?"]
    assert client.json("/detect", {"q": texts}).json[0]["language"] == "de"
    assert client.form("/detect", q="14").json == [{"confidence": 0.0, "language": "en"}]
    assert client.form("/detect").error == "Invalid request: missing q parameter"


def test_settings_health_and_the_documents(client: Client) -> None:
    settings = client.get("/frontend/settings").json
    assert settings["charLimit"] == -1
    assert (settings["sizeLimit"], settings["fileSizeLimit"], settings["alternativesLimit"]) == (2**20, 10 * 2**20, 8)
    assert settings["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert settings["supportedFilesFormat"] == list(SUFFIXES)
    assert not settings["apiKeys"]
    assert client.get("/health").json == {"status": "ok"}
    assert client.get("/spec").json == client.get("/openapi.json").json


def test_files_are_translated_and_downloaded(client: Client, translator: Translator) -> None:
    answer = client.upload(
        "/translate_file", "../my notes.txt", f"{TEXT}\r\n\r\n7\r\n".encode(), source="en", target="fr"
    )
    url = answer.json["translatedFileUrl"]
    assert url.startswith(client.url + "/download_file/")
    download = client.get(url.removeprefix(client.url))
    assert download.body.decode() == translated(translator, TEXT)[0] + "\r\n\r\n7\r\n"
    assert download.headers["content-disposition"] == 'attachment; filename="my_notes_fr.txt"'
    accented = client.upload("/translate_file", "été.txt", TEXT.encode(), source="en", target="fr")
    url = accented.json["translatedFileUrl"]
    assert url.endswith(".%C3%A9t%C3%A9_fr.txt")
    assert client.get(url.removeprefix(client.url)).body.decode() == translated(translator, TEXT)[0]
    for name, content, error in (
        ("a.exe", b"x", "Invalid request: file format not supported"),
        (
            "a.txt",
            b"\xff\xfe",
            "Invalid request: Line 1 of `a.txt` is not UTF-8 (invalid start byte); convert it, for example with iconv.",
        ),
        ("a.docx", b"PK", "Invalid request: `a.docx` is damaged: File is not a zip file. Save it again."),
        ("", b"x", "Invalid request: empty file"),
    ):
        assert client.upload("/translate_file", name, content, source="en", target="fr").error == error
    assert client.form("/translate_file", source="en", target="fr").error == "Invalid request: missing file parameter"
    assert client.get("/download_file/passwd").error == "Invalid filename"
    missing = client.get("/download_file/00000000-0000-0000-0000-000000000000.a.txt")
    assert missing.status == 404


def test_keys_and_rates(small_bundle: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# keys\nfast\nslow 2\n", encoding="utf-8")
    with serving(small_bundle, api_keys=keys, max_characters=20) as client:
        for path in ("/translate", "/detect", "/translate_file"):  # the key comes first
            assert client.json(path, {"api_key": "wrong"}).error == "Invalid API key"
        missing = client.form("/translate", **pair())
        assert (missing.status, missing.error) == (400, "Please contact the server operator to get an API key")
        wrong = client.form("/translate", **pair(api_key="wrong"))
        assert (wrong.status, wrong.error) == (403, "Invalid API key")
        assert client.form("/translate", **pair(api_key="fast")).status == 200
        assert client.json("/translate", pair(), authorization="Bearer fast").status == 200
        too_long = client.json("/translate", pair(q="a" * 21, api_key="fast"))
        assert too_long.error == "Invalid request: request (21) exceeds text limit (20)"
        assert client.json("/translate", pair(q=["a", "b"], api_key="slow")).status == 200
        slow = client.json("/translate", pair(api_key="slow"))
        assert (slow.status, slow.error) == (429, "Slowdown: 2 per 1 minute")
        assert 0 < int(slow.headers["retry-after"]) <= 30
        assert client.get("/languages").status == 200
        assert client.get("/frontend/settings").json["keyRequired"] is True
