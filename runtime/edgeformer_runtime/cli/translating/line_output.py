"""What ``translate`` writes for a line of one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from edgeformer_runtime.cli.output import one_line

if TYPE_CHECKING:
    from edgeformer_runtime.attention import Attention
    from edgeformer_runtime.translation import TextHypothesis, Translation


def plain_lines(translation: Translation, n_best: int) -> str:
    """The best text, or ``n_best`` lines with score and text, and a blank line."""
    if n_best == 1:
        return one_line(translation.text) + "\n"
    return "".join(f"{h.score:.4f}\t{one_line(h.text)}\n" for h in translation.hypotheses) + "\n"


def json_line(translation: Translation, attention: Attention | None = None) -> str:
    """One JSON object: the source, its hypotheses, and the attention if there is one."""
    record: dict[str, Any] = {
        "source": translation.source.text,
        "hypotheses": [_hypothesis_record(hypothesis) for hypothesis in translation.hypotheses],
    }
    if translation.source.truncated:
        record["truncated"] = translation.source.truncated
    if attention is not None:
        record["attention"] = {
            "source_tokens": attention.source_tokens,
            "target_tokens": attention.target_tokens,
            "weights": attention.weights.astype(float).round(6).tolist(),
            "alignment": attention.alignment,
        }
    return msgspec.json.encode(record).decode() + "\n"


def truncation_note(number: int, translation: Translation) -> str | None:
    """What to tell if the text of this number, counted from 1, was truncated."""
    dropped = translation.source.truncated
    if not dropped:
        return None
    tokens = "its last token was" if dropped == 1 else f"its last {dropped} tokens were"
    return f"Text {number} was truncated: {tokens} dropped."


def _hypothesis_record(hypothesis: TextHypothesis) -> dict[str, Any]:
    record = {name: getattr(hypothesis, name) for name in ("text", "tokens", "ids", "score", "finished")}
    if hypothesis.token_scores is not None:
        record["token_scores"] = hypothesis.token_scores
        record["confidence"] = hypothesis.confidence
    return record
