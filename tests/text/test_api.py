"""What Python programs find handy: streams, ``await``, glossaries as dictionaries, and objects that can be read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from edgeformer_runtime import CanceledError, InputError, OptionError, TimedOutError, Translator, in_thread
from edgeformer_text import Glossary, TextOptions, TextTranslator

TEXTS = ["The old dog runs. The sea {name}.\n", "", "- The green river sings.\r\n", "42"]


@pytest.fixture(scope="module")
def texts(translator: Translator) -> TextTranslator:
    return TextTranslator(translator, TextOptions(word_details=True))


class TestStreams:
    @pytest.mark.parametrize("chunk", [1, 3, 512])
    def test_they_give_what_lists_give_in_order(self, texts: TextTranslator, chunk: int) -> None:
        expected = texts.translate(TEXTS, beam_size=1)
        found = texts.translate_stream(iter(TEXTS), chunk=chunk, beam_size=1)
        assert [result.text for result in found] == [result.text for result in expected]

    def test_they_read_no_further_than_they_must(self, texts: TextTranslator) -> None:
        read: list[str] = []

        def source() -> Iterator[str]:
            for text in TEXTS:
                read.append(text)
                yield text

        stream = texts.translate_stream(source(), chunk=1, beam_size=1)
        assert read == []
        next(stream)
        assert read == TEXTS[:1]

    def test_they_may_be_given_up(self, texts: TextTranslator) -> None:
        stop = threading.Event()
        stream = texts.translate_stream(TEXTS, chunk=1, cancel=stop.is_set)
        next(stream)
        stop.set()
        with pytest.raises(CanceledError):
            next(stream)
        with pytest.raises(TimedOutError):
            list(texts.translate_stream(TEXTS, timeout=0))

    def test_mistakes_are_named_by_their_place(self, texts: TextTranslator) -> None:
        stream = texts.translate_stream(["dog", "sea", "\ud800"], chunk=1)
        assert [next(stream).text, next(stream).text]
        with pytest.raises(InputError, match="Text 3 must be valid Unicode"):
            next(stream)
        for wrong in ("dog", b"dog", 3):
            with pytest.raises(OptionError, match="`texts` must be a list of strings"):
                next(texts.translate_stream(wrong))  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="`chunk` must be at least 1"):
            next(texts.translate_stream(["dog"], chunk=0))


class TestAwaiting:
    def test_results_are_those_of_the_call(self, texts: TextTranslator) -> None:
        async def both() -> tuple[list[str], list[str]]:
            whole = in_thread(texts.translate, TEXTS, beam_size=1)
            lines = in_thread(texts.translator.translate, ["The dog."], beam_size=1)
            return [one.text for one in await whole], [one.text for one in await lines]

        whole, lines = asyncio.run(both())
        assert whole == [one.text for one in texts.translate(TEXTS, beam_size=1)]
        assert lines == [one.text for one in texts.translator.translate(["The dog."], beam_size=1)]

    def test_a_canceled_task_stops_the_thread(self) -> None:
        began, ended = threading.Event(), threading.Event()

        def translate(texts: list[str], *, cancel: object = None) -> None:
            began.set()
            assert callable(cancel)
            while not cancel():
                time.sleep(0.001)
            ended.set()

        async def canceled() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(in_thread(translate, ["dog"]), 0.1)
            assert await asyncio.to_thread(ended.wait, 30)

        asyncio.run(canceled())
        assert began.is_set()

    def test_own_limits_hold_too(self, texts: TextTranslator) -> None:
        with pytest.raises(CanceledError):
            asyncio.run(in_thread(texts.translate, TEXTS, cancel=lambda: True))
        with pytest.raises(TimedOutError):
            asyncio.run(in_thread(texts.translate, TEXTS, timeout=0.0))


class TestGlossaries:
    def test_a_dictionary_is_a_glossary(self, translator: Translator) -> None:
        terms = {"dog": "toutou"}
        text = "The old dog runs."
        (found,) = TextTranslator(translator, TextOptions(glossary=terms)).translate([text])
        (expected,) = TextTranslator(translator, TextOptions(glossary=Glossary(terms))).translate([text])
        assert "toutou" in found.text
        assert found.text == expected.text
