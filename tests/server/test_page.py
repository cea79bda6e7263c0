"""The page, in a real browser."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime import Translator
from edgeformer_server.api import libretranslate
from edgeformer_text import TextTranslator
from tests.npm import node_with
from tests.server.http import Client, serving

TEXT = "The old dog runs."
BUNDLES = ("de-en", "en-fr", "fr-en")
FASTER = "{ const wait = setTimeout; window.setTimeout = (work, time) => wait(work, time / 20); }"
"""JavaScript that lets the page wait less for further keys."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("needs Chromium on the path")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, client: Client) -> Iterator[Any]:
    """The page, opened; the test fails if it logs an error or asks another server."""
    with opened(browser, client) as page:
        yield page


@pytest.fixture(scope="module")
def translated(browser: Any, client: Client) -> Iterator[Any]:
    """The page with a translation, for tests that leave both as they are."""
    with opened(browser, client) as page:
        translate(page, TEXT)
        yield page


@contextmanager
def opened(browser: Any, client: Client, *, expected: str = "", **settings: Any) -> Iterator[Any]:
    """The page in a window with such settings; an error that is expected may be logged."""
    context = browser.new_context(**{"color_scheme": "light", **settings})
    context.add_init_script(FASTER)
    page, problems = context.new_page(), list[str]()
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: None if request.url.startswith((client.url, "data:")) else problems.append(request.url),
    )
    page.goto(client.url)
    page.wait_for_selector("#target option", state="attached")
    yield page
    context.close()
    assert not set(problems) - {expected}


def translate(page: Any, text: str, source: str = "en") -> None:
    page.select_option("#source", source)
    page.select_option("#target", "fr")
    page.fill("#text", text)
    page.wait_for_selector("#output:not(.stale) .word")


def test_the_files_are_small_and_strict(client: Client) -> None:
    sizes = 0
    for path, kind in (
        ("/", "text/html"),
        ("/docs", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/logo.svg", "image/svg+xml"),
    ):
        answer = client.get(path)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(kind)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert not re.search(rb"https?://(?!www.w3.org/2000/svg)", answer.body)
        sizes += len(answer.body) if path != "/docs" else 0
    assert sizes < 60_000


def test_text_is_translated_while_it_is_typed_and_spoken_in_its_language(page: Any, translator: Translator) -> None:
    lines = [TEXT, "two men play"]
    translate(page, "\n\n".join(lines))
    expected = [translation.text for translation in TextTranslator(translator).translate(lines)]
    assert page.text_content("#output") == "\n\n".join(expected)
    spoken = page.locator("#spoken")
    assert spoken.text_content() == page.text_content("#output")
    assert (spoken.get_attribute("aria-live"), spoken.get_attribute("lang")) == ("polite", "fr")
    assert (page.get_attribute("#text", "lang"), page.get_attribute("#output", "lang")) == ("en", "fr")
    assert page.get_attribute("#alternatives", "aria-live") == "polite"
    page.fill("#text", "")
    page.wait_for_selector("#output:empty:not(.stale)", state="attached")


def test_the_language_is_detected(page: Any) -> None:
    translate(page, "Der alte Hund rennt durch den tiefen Schnee.", source="auto")
    assert page.text_content("#source option:checked") == "German (detected)"
    page.fill("#text", "")
    page.wait_for_selector("#output:empty", state="attached")
    assert page.text_content("#source option:checked") == "Detect language"


def test_words_are_linked_by_pointer_and_keyboard(translated: Any) -> None:
    translated.hover("#output .word >> nth=1")
    assert translated.text_content("#mirror mark") in TEXT
    assert translated.text_content("#output .hit") == translated.text_content("#output .word >> nth=1")
    translated.hover("h1")
    assert translated.locator("#mirror mark").count() == 0
    translated.focus("#output")
    translated.keyboard.press("ArrowRight")
    translated.keyboard.press("ArrowRight")
    words = translated.locator("#output .word").all_text_contents()
    assert translated.text_content("#output .hit") == words[1]
    assert translated.text_content("#spoken").startswith(f"{words[1]} from ")


def test_wrong_numbers_are_marked_and_said(page: Any) -> None:
    translate(page, "The machine 5 and 6.")
    page.wait_for_selector("#output > .wrong")
    assert "Check the numbers: 14" in page.get_attribute("#output > .wrong", "title")
    assert page.text_content("#status") == "Check the numbers: 14"
    translate(page, TEXT)
    page.wait_for_selector("#output > .wrong", state="detached")
    assert page.text_content("#status") == ""


def test_sentences_are_shaded_by_confidence(translated: Any) -> None:
    title = translated.get_attribute("#output > span", "title")
    assert re.fullmatch(r"Confidence \d+ %", title)
    assert translated.locator("#output.shaded").count() == 1
    translated.uncheck("#shade")
    assert translated.locator("#output.shaded").count() == 0


def test_doubtful_sentences_are_counted(page: Any) -> None:
    def doubtful(route: Any) -> None:
        answer = route.fetch().json()
        answer["translations"][0]["sentences"][0]["is_doubtful"] = True
        route.fulfill(json=answer)

    page.route("**/v1/translate", doubtful)
    translate(page, f"{TEXT} {TEXT} 7.")
    assert page.text_content("#status") == "1 of 2 sentences may be wrong"
    assert page.locator("#output > .low").count() == 1


def test_alternatives_are_shown_on_request(translated: Any, client: Client) -> None:
    translated.click("#others summary")
    translated.wait_for_selector("#alternatives li")
    answer = client.json("/translate", {"q": TEXT, "source": "en", "target": "fr", "alternatives": 3}).json
    shown = translated.locator("#alternatives li").all_text_contents()
    texts = [answer["translatedText"], *answer["alternatives"]]
    assert shown == [text for text in texts if text != translated.text_content("#output")]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_no_answer_is_shown_for_another_text(browser: Any, client: Client, seed: int) -> None:
    refused = "Failed to load resource: the server responded with a status of 500 (Internal Server Error)"
    draw, waiting, text = random.Random(seed), list[Any](), ""
    kinds, cut_off = ("translated", "other"), "The server's answer has been cut off; try again."
    with opened(browser, client, expected=refused) as page:
        page.route(re.compile("/translate$"), lambda route: waiting.append(route))  # answered below, in any order
        page.select_option("#source", "en")
        page.select_option("#target", "fr")
        for step in range(10):
            kind = draw.choice(["type", "answer", "answer", "open"]) if step < 8 else "answer"
            if kind == "type":
                text = f"text {step}"
                page.fill("#text", text)
                page.wait_for_timeout(draw.choice([0, 60]))  # before or after the page asks for it
            elif kind == "open":
                page.click("#others summary")
            elif waiting:
                answer_one(waiting.pop(draw.randrange(len(waiting))), draw.choice(["whole", "whole", "error", "cut"]))
            page.wait_for_timeout(40)
            assert {*page.locator("#alternatives li").all_text_contents()} <= {f"{each} {text}" for each in kinds}
            assert page.text_content("#status") in {"", "Translating…", cut_off, f"refused {text}"}
            assert page.locator("#stale").is_visible() or page.text_content("#output") in {"", f"translated {text}"}


def answer_one(route: Any, kind: str) -> None:
    """Answer a request of the page, which may have given it up."""
    body = json.loads(route.request.post_data)
    (text,) = body.get("texts") or [body["q"]]
    translation = {"text": f"translated {text}", "sentences": []}
    answer = {"translations": [translation], "source": "en", "models": []}
    answer |= {"translatedText": translation["text"], "alternatives": [f"other {text}"]}
    if kind == "error":
        route.fulfill(status=500, json={"error": f"refused {text}"})
    else:
        route.fulfill(body=json.dumps(answer)[: None if kind == "whole" else 20], content_type="application/json")


def test_the_page_asks_for_no_more_than_the_server_permits(browser: Any, folder: Path) -> None:
    limits: dict[str, Any] = {"max_alternatives": 1, "max_characters": 30, "max_upload": 2000}
    with serving(folder, **limits) as limited, opened(browser, limited) as page:
        translate(page, TEXT)
        page.click("#others summary")
        page.wait_for_selector("#alternatives li")
        assert page.text_content("#count") == f"{len(TEXT)} of 30 characters"
        page.fill("#text", "")
        page.locator("#text").press_sequentially("dog " * 10)
        assert page.text_content("#count") == "30 of 30 characters"
        page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"x" * 2000})
        page.wait_for_selector("#file-status.error")
        assert page.text_content("#file-status") == "That is too large; this server takes 2,000 bytes at a time."


def test_what_the_server_does_not_offer_is_not_shown(browser: Any, folder: Path) -> None:
    with serving(folder, max_alternatives=0, files=False) as limited, opened(browser, limited) as page:
        translate(page, TEXT)
        for hidden in ("#others", ".file", "#zone", "#key-field"):
            assert page.locator(hidden).is_hidden()
        drop_a_file(page)
        assert page.text_content("#file-status.error") == "This server does not translate files."


def test_a_language_that_cannot_be_detected_is_chosen(
    browser: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libretranslate, "can_detect_languages", lambda: False)
    with opened(browser, client) as page:
        assert page.locator("#source option").all_text_contents() == ["German", "English", "French"]
        assert page.input_value("#source") == "de"


def test_a_key_is_entered(browser: Any, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n", encoding="utf-8")
    refused = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"
    with serving(folder, api_keys=tmp_path / "keys") as closed, opened(browser, closed, expected=refused) as page:
        page.select_option("#source", "en")
        page.fill("#text", TEXT)
        page.wait_for_selector("#status.error")
        assert page.text_content("#status") == "Please contact the server operator to get an API key"
        page.get_by_label("API key").fill("secret")
        page.keyboard.press("Tab")
        page.wait_for_selector("#output:not(.stale) .word")


def test_the_page_waits_as_long_as_it_is_told(browser: Any, folder: Path) -> None:
    refused = "Failed to load resource: the server responded with a status of 429 (Too Many Requests)"
    with serving(folder, rate_limit=60) as slow, opened(browser, slow, expected=refused) as page:
        slow.json("/v1/translate", {"texts": ["7"] * 60, "source": "en", "target": "fr"})
        page.select_option("#source", "en")
        page.fill("#text", TEXT)
        page.wait_for_selector("#status.error:text-is('The server is busy; trying again in 1 s.')")  # only for a moment
        page.wait_for_selector("#output:not(.stale) .word")
        assert page.text_content("#status") == ""


def test_languages_are_swapped_and_remembered(page: Any) -> None:
    translate(page, TEXT)
    output = page.text_content("#output")
    page.click("#swap")
    assert (page.input_value("#source"), page.input_value("#target")) == ("fr", "en")
    assert page.input_value("#text") == output
    page.reload()
    page.wait_for_selector("#target option", state="attached")
    assert (page.input_value("#source"), page.input_value("#target")) == ("fr", "en")


def test_an_old_translation_says_so_and_a_text_is_cleared(page: Any) -> None:
    translate(page, TEXT)
    assert page.locator("#stale").is_hidden()
    page.route("**/v1/translate", lambda route: None)  # which never answers
    page.fill("#text", "Two dogs.")
    assert page.locator("#stale").is_visible()
    page.click("#clear")
    page.wait_for_selector("#output:empty:not(.stale)", state="attached")
    assert page.input_value("#text") == ""
    assert page.locator("#clear").is_hidden()
    assert page.locator("#zone").is_visible()


def test_a_file_is_chosen_or_dropped_and_translated(page: Any, translator: Translator) -> None:
    page.select_option("#source", "en")
    page.select_option("#target", "fr")
    file = {"name": "a.txt", "mimeType": "text/plain", "buffer": TEXT.encode()}
    page.set_input_files("#file", file)
    with page.expect_download() as download:
        page.click("#download")
    (expected,) = TextTranslator(translator).translate([TEXT])
    assert Path(download.value.path()).read_text(encoding="utf-8") == expected.text
    drop_a_file(page)
    page.wait_for_selector("#file-status:text-is('b.txt is translated.')")
    assert page.locator("#download").is_visible()


def drop_a_file(page: Any) -> None:
    page.evaluate(
        """text => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([text], "b.txt", {type: "text/plain"}));
            const drop = new DragEvent("drop", {dataTransfer: transfer, cancelable: true});
            document.getElementById("drop").dispatchEvent(drop);
        }""",
        TEXT,
    )


def test_the_theme_follows_the_system_until_the_user_chooses(page: Any) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("#theme[aria-pressed=true]")
    assert background() != light
    page.click("#theme")
    assert background() == light
    page.emulate_media(color_scheme="light")
    page.emulate_media(color_scheme="dark")
    page.reload()
    page.wait_for_selector("#target option", state="attached")
    assert background() == light


def test_everything_has_a_name_and_is_reached_by_keyboard(page: Any) -> None:
    controls = page.locator("button:visible, select:visible, textarea, input:not([hidden])")
    for index in range(controls.count()):
        control = controls.nth(index)
        name = control.evaluate(
            "e => e.ariaLabel || e.textContent.trim() || (e.labels && e.labels[0]?.textContent.trim())"
        )
        assert name
    page.fill("#text", TEXT)
    page.focus("#theme")
    reached = ["theme"]
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.parentElement.id"))
    before, after = ["theme", "source", "swap", "target"], ["output", "shade", "copy", "others"]
    assert reached == [*before, "text", "clear", "file", *after]
    assert page.get_attribute("html", "lang") == "en"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("axe")
    node_with(folder, "axe-core")
    return (folder / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1440])
def test_axe_finds_nothing(browser: Any, client: Client, axe: str, width: int, color_scheme: str) -> None:
    """Contrasts of every state of a sentence among it."""

    def check(page: Any) -> None:
        page.evaluate(axe)
        assert page.evaluate("axe.run().then(found => found.violations.map(each => each.id))") == []

    window = {"width": width, "height": 800}
    with opened(browser, client, color_scheme=color_scheme, viewport=window) as page:
        check(page)
        translate(page, TEXT)
        page.click("#others summary")
        page.wait_for_selector("#alternatives li")
        for name in ("high", "middle", "low", "high hit"):
            page.evaluate("name => document.querySelector('#output > span').className = name", name)
            check(page)
        page.click("footer a[href=docs]")
        page.wait_for_selector(".docs h1")
        check(page)


def test_the_page_fits_a_narrow_window(browser: Any, client: Client) -> None:
    with opened(browser, client, viewport={"width": 320, "height": 700}) as page:
        page.evaluate("document.getElementById('key-field').hidden = false")
        translate(page, f"{TEXT} {'long' * 30}")
        page.click("#others summary")
        page.wait_for_selector("#alternatives li")
        page.evaluate("say('long'.repeat(30), true)")
        assert page.evaluate("document.documentElement.scrollWidth") == 320


def answering(content: object) -> Callable[[Any], object]:
    """Answers requests of the page."""
    return lambda route: route.fulfill(json=content)


def test_no_answer_becomes_part_of_the_page(browser: Any, client: Client) -> None:
    hostile = "<img src=x onerror='document.title = 1'><script>document.title = 1</script>"
    sentence = {"source": [0, 1], "target": [0, len(hostile)], "confidence": 0.5}
    answers = {
        "/v1/translate": {"translations": [{"text": hostile, "sentences": [sentence]}], "source": "en"},
        "/translate": {"translatedText": hostile, "alternatives": [hostile + hostile]},
        "/languages": [{"code": code, "name": hostile, "targets": ["en", "fr"]} for code in ("en", "fr")],
        "/translate_file": {"error": hostile},
    }
    with opened(browser, client) as page:
        for path, answer in answers.items():
            page.route(client.url + path, answering(answer))
        page.reload()
        page.wait_for_selector("#target option", state="attached")
        translate(page, TEXT)
        page.click("#others summary")
        page.wait_for_selector("#alternatives li")
        page.set_input_files("#file", {"name": f"{hostile}.txt", "mimeType": "text/plain", "buffer": b"x"})
        page.wait_for_selector("#file-status.error")
        assert page.text_content("#output") == hostile
        assert page.locator("#alternatives li").all_text_contents() == [hostile + hostile]
        assert page.locator("main img").count() == 0
        assert page.locator("script").count() == 1
        assert page.title() == "Translate"
