"""Who a client is, how much it may ask for and when again, and how often it may try a key."""

from __future__ import annotations

import json
import logging
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgeformer_runtime.errors import ConfigError
from edgeformer_server import access
from edgeformer_server.access import RateLimiter, client_behind, network, read_keys
from edgeformer_server.errors import ApiError
from edgeformer_server.middleware import JsonFormatter, RepeatedMessageFilter
from tests.server.http import serving


@pytest.mark.parametrize(
    ("proxies", "forwarded", "client"),
    [
        (0, "1.1.1.1", "9.9.9.9"),
        (1, "1.1.1.1, 2.2.2.2", "2.2.2.2"),
        (2, "1.1.1.1, 2.2.2.2,3.3.3.3", "2.2.2.2"),
        (5, "1.1.1.1, 2.2.2.2", "1.1.1.1"),
        (1, "", "9.9.9.9"),
        (2, "nonsense, 2001:db8::1", "2001:db8::1"),
    ],
)
def test_a_client_is_found_from_the_server_backwards(proxies: int, forwarded: str, client: str) -> None:
    assert client_behind(proxies, "9.9.9.9", forwarded) == client


@given(written=st.text(max_size=60), seen=st.lists(st.ip_addresses(), min_size=1, max_size=3))
def test_what_a_client_writes_does_not_change_its_address(written: str, seen: list[object]) -> None:
    """Each proxy adds the address that it sees; the first one sees the client."""
    assert client_behind(len(seen), "10.0.0.1", ",".join([written, *map(str, seen)])) == str(seen[0])


def test_links_have_the_scheme_of_the_proxy_and_limits_the_network(small_bundle: Path) -> None:
    content = {"q": "7", "source": "en", "target": "fr"}
    with serving(small_bundle, trusted_proxies=1, rate_limit=1) as client:
        for address, status in {
            "1.1.1.1, 2.2.2.2": 200,
            "3.3.3.3, 2.2.2.2": 429,
            "1.1.1.1, ::ffff:2.2.2.2": 429,
            "1.1.1.1, 4.4.4.4": 200,
            "2001:db8::1": 200,
            "2001:db8::ffff:ffff:ffff:ffff": 429,
            "2001:db8:0:1::1": 200,
        }.items():
            assert client.json("/translate", content, x_forwarded_for=address).status == status, address
        headers = {"x_forwarded_proto": "https"}
        answer = client.upload("/translate_file", "a.txt", b"7", headers, source="en", target="fr")
        assert answer.json["translatedFileUrl"].startswith("https://127.0.0.1")


@given(address=st.ip_addresses(v=6), other=st.integers(0, 2**64 - 1), v4=st.ip_addresses(v=4))
def test_a_client_is_one_address_of_version_4_or_64_bits_of_version_6(
    address: IPv6Address, other: int, v4: IPv4Address
) -> None:
    assume(address.ipv4_mapped is None)
    same = IPv6Address(int(address) >> 64 << 64 | other)
    assume(same.ipv4_mapped is None)
    assert network(str(address)) == network(f"{same}%eth0") != network(str(v4))
    assert network(str(IPv6Address(int(address) ^ 1 << 64))) != network(str(address))
    assert network(f"::ffff:{v4}") == network(str(v4)) == str(v4)


def test_wrong_keys_are_slowed_down_by_network(small_bundle: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("right\n", encoding="utf-8")
    content = {"q": "7", "source": "en", "target": "fr"}
    with serving(small_bundle, api_keys=keys, metrics_token="token", trusted_proxies=1) as client:
        for path, refused, key in (("/translate", 403, "right"), ("/metrics", 401, "token")):
            body = json.dumps(content).encode() if path == "/translate" else None
            own = {"content_type": "application/json", "x_forwarded_for": "2001:db8::1" if body else "2.2.2.2"}
            statuses = [client.ask(path, body, authorization="Bearer wrong", **own).status for _ in range(15)]
            assert statuses == [refused] * access.WRONG_KEYS + [429] * (15 - access.WRONG_KEYS)
            same = own | ({"x_forwarded_for": "2001:db8::ffff"} if body else {})
            assert client.ask(path, body, authorization=f"Bearer {key}", **same).status == 429
            other = {**own, "x_forwarded_for": "3.3.3.3"}
            assert client.ask(path, body, authorization=f"Bearer {key}", **other).status == 200


def test_a_log_line_has_nothing_that_a_terminal_acts_on() -> None:
    record = logging.LogRecord("edgeformer.serve", logging.ERROR, "", 0, "request failed", (), None)
    what = "\x1b[31m\u202e\u009b2J\r\n\x07é"
    vars(record)["fields"] = {"what": what}
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["what"] == what


def test_the_same_error_is_logged_once_per_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(message: str) -> logging.LogRecord:
        return logging.LogRecord("asyncio", logging.ERROR, "", 0, message, (), None)

    once, now = RepeatedMessageFilter(), [100.0]
    monkeypatch.setattr("edgeformer_server.middleware.time.monotonic", lambda: now[0])
    accept = "socket.accept() out of system resource\nsocket: "
    assert [once.filter(record(f"{accept}{number}")) for number in range(5)] == [True, False, False, False, False]
    assert once.filter(record("something else"))
    now[0] += 59.9
    assert not once.filter(record(accept))
    now[0] += 0.1
    assert [once.filter(record(accept)) for _ in range(2)] == [True, False]
    assert len(once._logged) == 1, "what is not logged any more is forgotten"


KEYS = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.none() | st.integers(1, 999), max_size=5)


@given(KEYS, st.data())
def test_keys_are_read_with_their_limits(keys: dict[str, int | None], data: st.DataObject) -> None:
    lines = [f" {key}\t{limit or ''}" for key, limit in keys.items()]
    ends = st.sampled_from(["", "  ", "# x", " # x y z", " #"])
    assert read_keys(line + data.draw(ends) for line in [*lines, "", "# x"]) == keys


@pytest.mark.parametrize("line", ["key 5 x", "key 0", "key -1", "key x", "key 1.5", "key ²"])
def test_a_limit_is_a_positive_number(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2: expected a key and a number"):
        read_keys(["other 5", line])


REQUESTS = st.lists(st.tuples(st.floats(0, 90), st.integers(1, 9)), min_size=1, max_size=60)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def is_allowed(limiter: RateLimiter, limit: int, cost: int, client: str = "one") -> bool:
    try:
        limiter.check(client, limit, cost)
    except ApiError:
        return False
    return True


@given(REQUESTS, st.integers(1, 20))
def test_no_client_gets_more_than_its_rate_and_each_gets_that(requests: list[tuple[float, int]], limit: int) -> None:
    clock, limiter, begun = Clock(), RateLimiter(), 1000.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "time", clock)
        total = 0
        for number, (pause, cost) in enumerate(requests):
            clock.now += pause
            total += min(cost, limit) * is_allowed(limiter, limit, cost)
            assert total <= limit + (clock.now - begun) * limit / 60 + 1e-6
            assert is_allowed(limiter, limit, limit, f"another {number}")
        clock.now += 60.001
        assert is_allowed(limiter, limit, limit)
        assert not is_allowed(limiter, limit, 1)
        clock.now += 60.001 / limit
        assert is_allowed(limiter, limit, 1)
        assert not is_allowed(limiter, limit, 1)


def test_the_time_to_wait_is_that_after_which_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, limiter = Clock(), RateLimiter()
    monkeypatch.setattr(access, "time", clock)
    limiter.check("one", 6, 6)
    with pytest.raises(ApiError) as refused:
        limiter.check("one", 6, 3)
    assert refused.value.headers == {"Retry-After": "30"}
    clock.now += 29.9
    assert not is_allowed(limiter, 6, 3)
    clock.now += 0.2
    assert is_allowed(limiter, 6, 3)


def test_the_client_that_was_seen_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_CLIENTS", 2)
    limiter = RateLimiter()
    for client in ("one", "two", "one", "three"):
        is_allowed(limiter, 1, 1, client)
    assert not is_allowed(limiter, 1, 1, "one")
    assert is_allowed(limiter, 1, 1, "two")
