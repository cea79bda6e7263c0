"""Who may ask, and how often: API keys and rate limits."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections import OrderedDict
from collections.abc import Iterable
from hmac import compare_digest
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from threading import Lock

from edgeformer_runtime.errors import ConfigError
from edgeformer_server.errors import ApiError

WRONG_KEYS = 10
"""Wrong API keys that a client may send per minute; with further ones it has to wait, whether they are right or not."""
KEYS_VARIABLE = "EDGEFORMER_API_KEYS"
"""Environment variable with API keys, separated by commas."""
MAX_CLIENTS = 10_000
"""Clients whose rates are followed; the least recently seen is forgotten."""


class RateLimiter:
    """Lets each client translate a number of texts per minute, at any time within it. Thread-safe."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What each client may still ask for, in texts, and when that was so; the least recently seen is first."""
        self._lock = Lock()

    def check(self, client: str, limit: int, cost: int, *, counts: bool = True) -> None:
        """Count texts of a client, or only check whether it has to wait. A request of more texts than the limit counts
        as the limit.

        Raises:
            ApiError: 429, the client has to wait.
        """
        now, cost = time.monotonic(), min(cost, limit)
        with self._lock:
            left, seen = self._buckets.pop(client, (limit, now))
            left = min(limit, left + (now - seen) * limit / 60)
            is_allowed = left >= cost
            self._buckets[client] = left - cost if is_allowed and counts else left, now
            if len(self._buckets) > MAX_CLIENTS:
                self._buckets.popitem(last=False)
        if not is_allowed:
            seconds = math.ceil((cost - left) * 60 / limit)
            raise ApiError(429, f"Slowdown: {limit} per 1 minute", {"Retry-After": str(seconds)})


class Access:
    """Checks API keys and rates.

    Args:
        keys: limits of texts per minute by API key, ``None`` for the general limit; without keys, everyone may ask.
        rate_limit: texts per minute and client; ``None`` means no limit.
    """

    def __init__(self, keys: dict[str, int | None], rate_limit: int | None) -> None:
        self._limits = {_digest(key): limit for key, limit in keys.items()}
        self._rate_limit, self._limiter = rate_limit, RateLimiter()

    @classmethod
    def of(cls, path: Path | None, rate_limit: int | None) -> Access:
        """Read the keys of a file and of the environment variable ``EDGEFORMER_API_KEYS``.

        Raises:
            ConfigError: the file cannot be read, or has a limit that is not a positive number.
        """
        lines = os.environ.get(KEYS_VARIABLE, "").replace(",", "\n").splitlines()
        if path is not None:
            try:
                lines += path.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"The API keys `{path}` cannot be read ({error}).") from None
        keys = read_keys(lines)
        if path is not None and not keys:
            raise ConfigError(f"`{path}` has no API key; write one per line.")
        return cls(keys, rate_limit)

    @property
    def needs_key(self) -> bool:
        """Whether a key is required."""
        return bool(self._limits)

    def check(self, key: str, client: str, cost: int = 1, *, missing_status: int = 400) -> None:
        """Check a request.

        Args:
            key: its API key, or empty.
            client: address of the client.
            cost: number of texts.
            missing_status: HTTP status if there is no key but there must be one.

        Raises:
            ApiError: the key is missing or wrong, or the client has to wait.
        """
        limit = self._rate_limit
        if self._limits:
            if not key:
                raise ApiError(missing_status, "Please contact the server operator to get an API key")
            digest = _digest(key)  # compared by hash, so that the time says nothing about the key
            self._limiter.check(f"wrong keys of {client}", WRONG_KEYS, 1, counts=digest not in self._limits)
            if digest not in self._limits:
                raise ApiError(403, "Invalid API key")
            client, limit = digest, self._limits[digest] or limit
        if limit is not None:
            self._limiter.check(client, limit, cost)

    def check_token(self, token: str, expected: str, client: str) -> None:
        """Check a bearer token that is not an API key.

        Raises:
            ApiError: it is wrong, or the client has to wait after several wrong ones.
        """
        is_right = compare_digest(token.encode(), expected.encode())
        self._limiter.check(f"wrong keys of {client}", WRONG_KEYS, 1, counts=not is_right)
        if not is_right:
            raise ApiError(401, "Unauthorized")

    def identity(self, key: str, client: str) -> str:
        """What tells a client that was checked from others: its API key, if there are any, or its address."""
        return _digest(key) if self._limits else client


def client_behind(proxies: int, peer: str, forwarded: str) -> str:
    """Return the address of a client, going back from the server by as many proxies as there are.

    Args:
        proxies: how many proxies there are in a row; each adds the address of whoever asks it to what it was sent.
        peer: who opened the connection.
        forwarded: the ``X-Forwarded-For`` header; what is on the left may have been written by anyone.
    """
    client = peer
    for _, address in zip(range(proxies), reversed(forwarded.split(",")), strict=False):
        if not is_address(address.strip()):
            break
        client = address.strip()
    return client


def network(address: str) -> str:
    """What tells clients apart by their addresses: in IPv6, the first 64 bits, since one client has all addresses that
    begin with them, unless they stand for an address of IPv4."""
    if not is_address(address) or isinstance(parsed := ip_address(address), IPv4Address):
        return address
    return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def read_keys(lines: Iterable[str]) -> dict[str, int | None]:
    """Read API keys, one per line, each with a limit of texts per minute after it or without; ``#`` begins a comment.

    Raises:
        ConfigError: a limit is not a positive number.
    """
    keys: dict[str, int | None] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if len(words) > 2 or (len(words) == 2 and not (words[1].isascii() and words[1].isdigit() and int(words[1]))):
            raise ConfigError(
                f"API keys, line {number}: expected a key and a number of texts per minute, or only a key."
            )
        if words:
            keys[words[0]] = int(words[1]) if len(words) == 2 else None
    return keys


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
