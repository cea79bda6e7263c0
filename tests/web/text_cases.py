"""Texts that the two implementations of the text layer share: what Python makes of them, with translators of sentences
whose output is recorded.

Usage: ``python -m tests.web.text_cases``, from the root of the repository, whenever the text layer changes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgeformer_runtime.translation import Translation
from edgeformer_text.text_translator import TextTranslator
from tests.text.attended import ReversingTranslator, UnfaithfulTranslator, WordTranslator
from tests.web.rules import as_lines

FILE = Path(__file__).parent / "cases" / "text.json"
"""Where the cases are."""
PLAIN = [
    "The dog runs. A red car!",
    "the dog {name} runs to https://example.com/a_(b). Write to john@example.org!",
    "- the dog\n- a red car\n\n  1. the dog runs  \n> the dog. The car.\n\n42\n",
    "THE OLD DOG RUNS NEAR THE SEA AND THE iPhone.",
    "A RED CAR, THE DOG AND {x}",
    "You have %d red cars, %(name)s. $HOME is /usr/share/dogs: see README.md and --help.",
    "The dog :smile: runs 🙂👍🏽 near the #sea, @john!",
    "{n, plural, one {# dog} other {# red dogs}} in the red car.",
    "the {a}/{b} dog and $x^2$ cars [1], snake_case and f() too",
    "Le chien d'{x} l'aime. Qu'il court !",
    "  \t the dog\u00a0runs  \u200b",
    "The \u2068old\u2069 dog\u200f runs  to\u00adgether. \u202bA red car\u202c.",
    "12\tthe dog\t\ta red car. A dog\n",
    "red " * 120 + "dog.",
    "the dog, " * 40 + "and a red car.",
    "狗{x}跑。狗跑！the dog",
    "https://a.b 12:30 {x}",
    "The dog runs... A car… A dog?! \u201cA red car.\u201d The dog.",
    "A dog (the red car. x) runs. The dog.",
    "Mr. Smith runs. J. S. Bach, e.g. a dog, runs at 5 p.m. The dog.",
    "The dog runs 3 times. 12 red cars, 3 dogs and 250 dogs run.",
    "The car costs $1,250.50 or 3.5% at 3:30 p.m. on 12/3/1999.",
    "The 3rd dog, two cars, XII dogs and ٣ dogs in 1999; 12 m2.",
    "{n} dogs run 12 km to https://a.b/3 on the 1st day of 250.",
    "",
    "\n\n",
    "{x}",
    "dog dog dog dog dog dog",
]
MARKUP = [
    "<p>a <b>red</b> <i>car</i></p>",
    "<p><a href='x'>a red</a> car</p>",
    "<p>a <b>red <u>car</u></b>!</p>",
    "<p>a <img src='x'>red car</p>",
    "<p>a <b>dog</b>, a <i>car,</i> x</p>",
    "<p><b>a red car</b></p>",
    "<p>l'<b>eau</b> qu'<i>on</i> d'x</p>",
    "<p>The <a href='y'>red dog. The</a> red <b>car</b> runs. The <i>dog</i>.</p>",
    "<p>The dog.</p><script>if (a < b) the.dog()</script><style>p > a {}</style><pre>The dog</pre><p>The car.</p>",
    "<p class='x notranslate'>The dog runs.</p><p>a red car</p><p translate='no'>a <b>dog</b></p>",
    "<p>the <code>red car</code> runs <kbd>Ctrl</kbd>+<kbd>C</kbd> to the dog</p>",
    "<p>dog<sup>[1]</sup>runs and H<sub>2</sub>O, the<sup>[2]</sup> dog</p>",
    "<ul><li>the dog<li>a <b>red car</b></ul><table><tr><td>the dog<td>a red car</table>",
    "<p>the\n   red   <b> dog </b>\n runs</p>",
    "<p>the dog<br>runs <span title='a red car'>a car</span> <img alt='the dog'></p>",
    "<p>a &lt;b&gt; &amp; the dog &nbsp; runs</p>",
    "<div>the dog <div>a red car</div> the car</div>",
    "<p>the <!-- a dog --> red dog<wbr>gy</p>",
    "<p><b>the</b> <i>dog {x}</i> runs <u>to {y} the</u> red <s>car</s>.</p>",
    "<p>dog<img>runs <b></b> the <a id='z'></a>car</p>",
    "<input placeholder='the dog' value='a car'><input type='submit' value='a red car'><button>the dog</button>",
    "<h1>THE RED DOG AND THE CAR</h1><p><b>Note:</b> the <b><i>red</i> dog</b>, a <i><b>car</b></i></p>",
    "<p>the <b>3 dogs</b> and <i>12</i> cars cost <u>€250</u>, 1999.</p>",
    "<p>w1 <b>w2 <i>w3 w4</i> w5</b> w6 <u>w7</u> w8 <s>w9 <a>w10</a></s></p>",
    "<p>the <b>dog</b>s run. <b>The</b> d<i>o</i>g.</p>",
    "<select><option label='the dog'>a red car<option>the dog</select><textarea placeholder='a car'>the dog</textarea>",
]


class MistakenTranslator(WordTranslator):
    """Writes other numbers."""

    dictionary: Mapping[str, str] = {
        **WordTranslator.dictionary,
        "3": "4",
        "12": "21",
        "250": "205",
        "1999": "1998",
        "two": "deux",
    }


class Recorder:
    """Notes what a translator of words writes, as far as its attention and tokens need it."""

    def __init__(self, translator: WordTranslator) -> None:
        self.translator, self.sentences = translator, list[dict[str, Any]]()
        original, known = translator.translation, dict[str, Translation]()

        def translation(text: str) -> Translation:
            if text not in known:
                known[text] = recorded(text)
            return known[text]

        def recorded(text: str) -> Translation:
            orders = list[list[int]]()
            order = type(translator).order.__get__(translator)

            def noted(words: Sequence[str]) -> list[int]:
                orders.append(order(words))
                return orders[-1]

            translator.order = noted  # type: ignore[method-assign]
            made = original(text)
            tokens = list(made.best.tokens)
            self.sentences.append(
                {"source": text, "text": made.text, "tokens": tokens, "order": orders[0], "share": translator.share}
            )
            return made

        translator.translation = translation  # type: ignore[method-assign]


def cases() -> list[dict[str, Any]]:
    """All cases."""
    return [
        case
        for format, texts in (("text", PLAIN), ("html", MARKUP))
        for text in texts
        for case in translated(format, text)
    ]


def translated(format: Any, text: str) -> list[dict[str, Any]]:
    """A text, translated by several translators."""
    found = []
    for make in (WordTranslator, ReversingTranslator, MistakenTranslator, lambda: UnfaithfulTranslator(9)):
        recorder = Recorder(make())
        texts: Any = TextTranslator(recorder.translator)  # type: ignore[arg-type]
        (result,) = texts.translate([text], format=format)
        found.append({"format": format, "text": text, "sentences": recorder.sentences, "expected": result.text})
    return found


def content() -> str:
    """The content of the file."""
    return as_lines(cases())


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8")
