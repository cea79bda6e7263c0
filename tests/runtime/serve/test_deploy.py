"""The files to deploy a server with: what they start exists, and what they say of each other is true."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from typing import Any

import click
import pytest
import yaml

from edgeformer.cli import main
from edgeformer_runtime.cli.serve import Size
from tests.conftest import ROOT

DEPLOY = ROOT / "deploy"


def parsed(words: list[str]) -> dict[str, Any]:
    """Parameters of ``edgeformer serve`` with arguments; fails if they are wrong."""
    command = main.get_command(click.Context(main), "serve")
    assert command is not None
    return command.make_context("serve", words).params


def dockerfile(instruction: str) -> list[str]:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return re.findall(rf"^{instruction} +(.+)$", text, re.MULTILINE)


def size(text: str) -> int:
    """A number of bytes."""
    return Size().convert(text.upper(), None, None)


def test_the_image_starts_a_server_that_is_not_root() -> None:
    assert json.loads(dockerfile("ENTRYPOINT")[0]) == ["edgeformer", "serve"]
    settings = parsed(json.loads(dockerfile("CMD")[0]))
    assert settings["bundles"] == ("/bundles",)
    assert dockerfile("EXPOSE") == [str(settings["port"])]
    assert dockerfile("USER") == ["10001"]
    assert "[cpu,serve,text,detect,sentencepiece]" in dockerfile("RUN")[0]


def test_the_service_starts_a_server() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keep capitals
    unit.read(DEPLOY / "edgeformer.service", encoding="utf-8")
    program, command, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (program.rpartition("/")[2], command) == ("edgeformer", "serve")
    settings = parsed(words)
    assert settings["memory"] == 2 * 2**30
    assert settings["files_quota"] < size(re.findall(r"size=(\d+\w)", unit["Service"]["TemporaryFileSystem"])[0])
    assert int(unit["Service"]["LimitNOFILE"]) * 3 // 4 >= settings["max_connections"]
    assert size(unit["Service"]["MemoryMax"]) > settings["memory"]
    assert int(unit["Service"]["TimeoutStopSec"]) > settings["shutdown_timeout"]


def test_the_proxy_reaches_both_servers_and_waits_longer_than_they_do() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    settings = parsed(services["server"]["command"])
    assert services["server"]["deploy"]["replicas"] == 2
    assert settings["trusted_proxies"] == 1  # nginx
    (folder,) = services["server"]["tmpfs"]
    assert settings["files_quota"] < size(re.findall(r"size=(\d+\w)", folder)[0])
    assert services["server"]["ulimits"]["nofile"] * 3 // 4 >= settings["max_connections"]
    assert int(services["server"]["stop_grace_period"].rstrip("s")) > settings["shutdown_timeout"]
    proxy = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert re.findall(r"server (\w+):(\d+)", proxy) == [("server", str(settings["port"]))] * 2
    assert int(re.findall(r"proxy_read_timeout (\d+)s", proxy)[0]) > settings["timeout"]
    small, large = re.findall(r"client_max_body_size (\d+m)", proxy)
    assert (size(small), size(large)) == (settings["max_body"], settings["max_upload"])
    assert (DEPLOY / services["proxy"]["volumes"][0].partition(":")[0]).is_file()


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml"])
def test_they_name_files_that_exist(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    for path in re.findall(r"(?:deploy/[\w.]+|constraints\.txt)", text):
        assert (ROOT / path).is_file(), path
