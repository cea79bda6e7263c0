"""Message catalogs: what is translated can be compiled, and reviewed."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from edgeformer_text.block import Block
from edgeformer_text.documents.files import read_document, translate_content
from edgeformer_text.documents.gettext import read_po
from edgeformer_text.documents.messages import checked
from tests.text.attended import text_translator

HEADER = 'msgid ""\nmsgstr ""\n"Language: \\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
PLURALS = "Plural-Forms: nplurals={}; plural={};\\n"
CATALOG = f"""{HEADER}"{PLURALS.format(2, "n > 1")}"

#. a dog
#: x.c:1
#, c-format, no-wrap
#| msgid "a cat"
msgctxt "menu"
msgid "a red %s, 100%% the car %d"
msgstr ""

#~ msgid "old"
#~ msgstr "alt"

msgid "Click <a href=\\"https://x.example/%s\\" title='a dog'>the <b>red</b> car</a><br>\\n"
"{{name}} runs &amp; x\\n"
msgstr ""

#, python-format
msgid "%(count)d dog"
msgid_plural "%(count)d red car %%"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
msgid "the dog"
msgstr "der Hund"
"""


def translated(content: str) -> str:
    return translate_content(text_translator(), content.encode(), "a.po")[0].decode()


def message(found: str, part: str) -> str:
    """The message that has a text."""
    return next(each for each in re.split(r"\r?\n\r?\n", found) if part in each)


def compiled(content: str) -> None:
    """Check a catalog with gettext's own compiler."""
    msgfmt = shutil.which("msgfmt")
    if msgfmt is None:
        pytest.skip("needs msgfmt of GNU gettext")
    command = [msgfmt, "--check-format", "--check-header", "--check-domain", "--use-fuzzy", "-o", "/dev/null", "-"]
    result = subprocess.run(command, input=content.encode(), capture_output=True, check=False)
    errors = [line for line in result.stderr.decode().splitlines() if "header field" not in line]
    assert result.returncode == 0, errors


def test_tags_directives_and_lines_stay() -> None:
    found = translated(CATALOG)
    assert 'msgstr "une %s, rouge 100 %% le voiture %d"' in message(found, "menu")
    assert '<a href=\\"https://x.example/%s\\" title=\'une chien\'>le voiture <b>rouge</b></a><br>\\n"\n' in found
    assert '"{name} court &amp; x\\n"' in message(found, "Click")
    assert 'msgstr[0] "%(count)d chien"\nmsgstr[1] "%(count)d voiture rouge %%"' in found
    assert 'msgid "the dog"\nmsgstr "der Hund"' in found


def test_what_is_translated_is_fuzzy_and_nothing_else_changes() -> None:
    found = translated(CATALOG)
    assert message(found, "menu").startswith(
        '#. a dog\n#: x.c:1\n#, fuzzy, c-format, no-wrap\n#| msgid "a cat"\nmsgctxt "menu"\n'
    )
    assert message(found, "Click").startswith("#, fuzzy\nmsgid")
    assert message(found, "%(count)d").startswith("#, fuzzy, python-format\nmsgid")
    assert message(found, "the dog").startswith("#, fuzzy\nmsgid")
    assert found.count("fuzzy") == 4
    assert message(found, "old") == message(CATALOG, "old")
    assert translated(found) == found
    crlf = translated(CATALOG.replace("\n", "\r\n"))
    assert crlf.count("\n") == crlf.count("\r\n")
    assert crlf.replace("\r\n", "\n") == found


def test_the_result_can_be_compiled() -> None:
    compiled(translated(CATALOG))


def test_the_language_is_named_if_it_was_not() -> None:
    assert '"Language: fr\\n"' in translated(CATALOG)
    named = CATALOG.replace("Language: ", "Language: fr_CA")
    assert '"Language: fr_CA\\n"' in translated(named)
    document = read_document(CATALOG.encode(), "a.po")
    texts = [""] * len(document.pieces)
    for code, name in (("zh-Hans", "zh_CN"), ("pt_BR", "pt_BR"), ("deu_Latn", "deu"), ("", "")):
        assert f'"Language: {name}\\n"' in document.write(texts, code).decode()
    assert "msgstr" in translated('msgid "a dog"\nmsgstr ""\n')


@pytest.mark.parametrize("charset", ["CHARSET", "ISO-8859-1", "UTF-8", "utf-8"])
def test_the_encoding_is_named(charset: str) -> None:
    content = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={charset}\\n"\n\nmsgid "a dog"\nmsgstr ""\n'
    document = read_document(content.encode(), "a.po")
    found = document.write(["été"], "fr").decode()
    assert f"charset={charset if charset == 'utf-8' else 'UTF-8'}\\n" in found
    compiled(found)


@pytest.mark.parametrize(
    ("forms", "rule", "expected"),
    [
        (1, "0", ["%d voiture"]),
        (2, "n != 1", ["une chien", "%d voiture"]),
        (2, "n%10!=1 || n%100==11", ["%d voiture"] * 2),  # in Icelandic, the first form is also that of 21
        (3, "n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2", ["%d voiture"] * 3),
    ],
)
def test_there_are_as_many_plural_forms_as_the_language_has(forms: int, rule: str, expected: list[str]) -> None:
    header = f'{HEADER}"{PLURALS.format(forms, rule)}"\n'
    content = f'{header}\n#, c-format\nmsgid "a dog"\nmsgid_plural "%d car"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    found = translated(content)
    assert re.findall(r'(?m)^msgstr\[\d\] "(.*)"$', found) == expected
    compiled(found)


@pytest.mark.parametrize(
    ("flags", "source", "translation", "expected"),
    [
        (["c-format"], "%s has %d", "%d von %s", "%2$d von %1$s"),
        (["c-format"], "%s %d %s", "%d %s %s", "%2$d %1$s %3$s"),
        (["c-format"], "%1$s has %2$d", "%2$d von %1$s", "%2$d von %1$s"),
        (["c-format"], "%*d of %s", "%s von %*d", ""),
        (["c-format"], "%s", "50 %% %s", "50 %% %s"),
        (["c-format"], "%s", "%s %s", ""),
        (["python-format"], "%s has %d", "%d von %s", ""),
        (["python-format"], "%(a)s has %(b)d", "%(b)d von %(a)s", "%(b)d von %(a)s"),
        (["no-c-format"], "%s has %d", "%d von %s", "%d von %s"),
    ],
)
def test_directives_in_another_order(flags: list[str], source: str, translation: str, expected: str) -> None:
    assert checked(source, translation, flags) == expected


def test_a_message_that_could_not_be_formatted_stays_untranslated() -> None:
    content = '#, python-format\nmsgid "red %s %d"\nmsgstr ""\n'
    assert translated(content.replace("red", "the")) != content
    document = read_document(content.encode(), "a.po")
    assert document.write(["%d %s"], "fr").decode() == content


def test_directives_of_qt_stay() -> None:
    found = translated('#, qt-format\nmsgid "red %1 dog, %n car %L2"\nmsgstr ""\n')
    assert re.search(r'msgstr "(?=.*%1)(?=.*%n)(?=.*%L2)', found)


@pytest.mark.parametrize("written", [r"\303\251", r"\xc3\xa9", r"\303\xa9", "é", '\\303"\n"\\251'])
def test_escapes_of_bytes_are_utf_8(written: str) -> None:
    document = read_po(f'msgid "a caf{written} in \\101\\t\\q"\nmsgstr ""\n'.encode(), "a.po")
    (piece,) = document.pieces
    assert [part.text if isinstance(part, Block) else part for part in piece] == ["a café in A\tq"]


def test_bytes_that_are_not_utf_8_are_replaced() -> None:
    (piece,) = read_po(b'msgid "a \\377 \\777"\nmsgstr ""\n', "a.po").pieces
    assert [part.text if isinstance(part, Block) else part for part in piece] == ["a \ufffd \ufffd"]
