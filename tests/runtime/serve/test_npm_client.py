"""A client of LibreTranslate's API from npm: ``translate`` with its engine ``libre``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime import Translator
from edgeformer_runtime.text import TextTranslator
from tests.npm import node_with
from tests.runtime.serve.http import Client, serving

pytestmark = pytest.mark.slow

SCRIPT = """
import { Translate } from "translate";
const { url, key, texts, to } = JSON.parse(process.argv[2]);
const translate = Translate({ engine: "libre", url, key, from: "en" });
const asked = texts.map((text) => translate(text, to).catch((error) => ({ error: String(error) })));
const results = await Promise.all(asked);
console.log(JSON.stringify(results));
"""
TEXTS = ["The old dog runs.", "two men play\n\nA café, 14 times!", "7"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The command, and a script that uses the package."""
    folder = tmp_path_factory.mktemp("node")
    command = node_with(folder, "translate@3.1.0")
    (folder / "client.mjs").write_text(SCRIPT, encoding="utf-8")
    return command, folder / "client.mjs"


@pytest.fixture(scope="module")
def client(bundle: Path, folder: Path) -> Iterator[Client]:
    keys = folder / "keys"
    keys.write_text("secret\n", encoding="utf-8")
    with serving(bundle, api_keys=keys) as client:
        yield client


def ask(node: tuple[str, Path], client: Client, **changes: Any) -> list[Any]:
    command, script = node
    settings = {"url": f"{client.url}/translate", "key": "secret", "texts": TEXTS, "to": "fr", **changes}
    arguments = [command, str(script), json.dumps(settings)]
    found = subprocess.run(arguments, check=True, capture_output=True, timeout=60, encoding="utf-8").stdout
    results: list[Any] = json.loads(found)
    return results


def test_texts_are_translated(node: tuple[str, Path], client: Client, translator: Translator) -> None:
    expected = [translation.text for translation in TextTranslator(translator).translate(TEXTS)]
    assert ask(node, client) == expected


def test_the_client_reports_our_errors(node: tuple[str, Path], client: Client) -> None:
    assert ask(node, client, key="wrong") == [{"error": "Error: Invalid API key"}] * len(TEXTS)
    (refused,) = ask(node, client, texts=["dog"], to="de")
    assert "de is not supported" in refused["error"]
