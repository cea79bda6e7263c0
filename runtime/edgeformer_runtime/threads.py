"""Translating without blocking an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


async def in_thread(
    translate: Callable[Parameters, Result], /, *arguments: Parameters.args, **settings: Parameters.kwargs
) -> Result:
    """Call a method that translates in a thread, and stop it within a decoder step if the task is canceled.

    >>> async def greet(translator: Translator) -> list[Translation]:
    ...     return await in_thread(translator.translate, ["Hello."], timeout=2.0)

    Args:
        translate: ``translate`` of a :class:`Translator` or :class:`TextTranslator`, or another function that takes
            ``cancel``.
        arguments: its arguments.
        settings: its keyword arguments; ``cancel`` may be a function here.
    """
    gone = threading.Event()
    named: dict[str, Any] = dict(settings)
    cancel = named.pop("cancel", None)
    stopped = gone.is_set if cancel is None else lambda: gone.is_set() or cancel()
    call: Callable[..., Result] = translate
    try:
        return await asyncio.to_thread(call, *arguments, cancel=stopped, **named)
    finally:
        gone.set()
