"""Clients of LibreTranslate's API, for locust: each sends a sentence, waits for the answer, and sends the next.

The environment has the sentences and the languages; see :mod:`edgeformer_bench.load.study`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from locust import HttpUser, task

from edgeformer_bench.load import LANGUAGES, SOURCE


class Client(HttpUser):
    """A client that translates."""

    texts = Path(os.environ[SOURCE]).read_text(encoding="utf-8").splitlines()
    source, target = os.environ[LANGUAGES].split("-")

    @task
    def translate(self) -> Any:
        """Translate a sentence. A refusal counts as one, not as a failure."""
        body = {"q": random.choice(self.texts), "source": self.source, "target": self.target}
        with self.client.post("/translate", json=body, catch_response=True, name="translated") as answer:
            if answer.status_code == 503 and "Retry-After" in answer.headers:
                answer.request_meta["name"] = "refused"
                answer.success()
            elif answer.status_code == 200 and answer.json()["translatedText"]:
                answer.success()
            else:
                answer.failure(f"status {answer.status_code}")
