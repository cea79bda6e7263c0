"""Signatures: a bundle is opened with trusted keys only if one of them signed exactly this manifest."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeformer_runtime.bundle.open import open_bundle
from edgeformer_runtime.errors import BundleError, ConfigError, OptionError
from edgeformer_runtime.translator import Translator
from tests.bundles import copy_of, edit_manifest, rehash
from tests.commands import error, run


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, Path]:
    """Two pairs of keys, ``one`` and ``other``, and a key of another kind, as openssl writes them."""
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    folder = tmp_path / "keys"
    folder.mkdir()
    made: dict[str, Any] = {
        "one": ed25519.Ed25519PrivateKey.generate(),
        "other": ed25519.Ed25519PrivateKey.generate(),
        "curve": ec.generate_private_key(ec.SECP256R1()),
    }
    for name, key in made.items():
        (folder / f"{name}.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        (folder / f"{name}.pub").write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def signed(small_bundle: Path, tmp_path: Path, keys: dict[str, Path]) -> Path:
    bundle = copy_of(small_bundle, tmp_path)
    assert run("sign", bundle, "--key", keys["one.pem"]).stdout.startswith("Signed by key ")
    return bundle


def test_a_signed_bundle_is_opened_with_its_key(signed: Path, keys: dict[str, Path]) -> None:
    trusted = [keys["other.pub"], keys["one.pub"]]
    assert Translator.open(signed, threads=1, trusted_keys=trusted).translate([""])[0].text == ""
    assert open_bundle(signed, trusted_keys=[keys["one.pub"].read_bytes(), str(keys["other.pub"])])
    assert open_bundle(signed)  # nobody asks
    options = ("--trusted-key", keys["other.pub"], "--trusted-key", keys["one.pub"])
    assert run("verify", signed, *options).stdout.endswith("PASSED\n")
    translated = run("translate", signed, "The old dog runs.", *options).stdout
    assert translated.strip()
    assert translated == run("translate", signed, "The old dog runs.").stdout


def test_a_later_signature_replaces_an_earlier_one(signed: Path, keys: dict[str, Path]) -> None:
    run("sign", signed, "--key", keys["other.pem"])
    assert open_bundle(signed, trusted_keys=[keys["other.pub"]])
    with pytest.raises(BundleError, match=r"is signed by key [0-9a-f]{64}, which is not a trusted key"):
        open_bundle(signed, trusted_keys=[keys["one.pub"]])


def test_other_keys_and_no_keys_trust_nothing(signed: Path, keys: dict[str, Path]) -> None:
    for trusted in ([keys["other.pub"]], []):
        with pytest.raises(BundleError, match="which is not a trusted key"):
            Translator.open(signed, trusted_keys=trusted)
    for command, *text in (["verify"], ["translate", "The old dog runs."], ["serve"]):
        message = error(command, signed, *text, "--trusted-key", keys["other.pub"])
        assert "which is not a trusted key" in message


def test_a_bundle_without_signature_is_refused(small_bundle: Path, keys: dict[str, Path]) -> None:
    with pytest.raises(BundleError, match=r"is not signed: it has no `signature\.json`"):
        open_bundle(small_bundle, trusted_keys=[keys["one.pub"]])


def test_a_bundle_that_was_changed_and_hashed_again_is_refused(
    small_bundle: Path, signed: Path, keys: dict[str, Path], tmp_path: Path
) -> None:
    edit_manifest(signed, lambda tree: tree["generation"].update(beam_size=5))
    assert open_bundle(signed).manifest.generation.beam_size == 5
    with pytest.raises(BundleError, match=r"the signature is not one of this `manifest\.json`"):
        open_bundle(signed, trusted_keys=[keys["one.pub"]])

    other = copy_of(small_bundle, tmp_path / "other")
    (other / "signature.json").write_bytes((signed / "signature.json").read_bytes())
    assert open_bundle(other, trusted_keys=[keys["one.pub"]])  # the same manifest
    weights = bytearray((other / "weights.bin").read_bytes())
    weights[0] ^= 1
    (other / "weights.bin").write_bytes(weights)
    with pytest.raises(BundleError, match=r"`weights\.bin` does not match its SHA-256"):
        open_bundle(other, trusted_keys=[keys["one.pub"]])
    with pytest.raises(BundleError, match="the signature is not one of this"):
        open_bundle(rehash(other), trusted_keys=[keys["one.pub"]])


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "none"},
        {"signature": ""},
        {"signature": "0" * 127 + "g"},
        {"public_key": "0" * 63},
        {"surprise": 1},
    ],
)
def test_a_damaged_signature_is_refused(signed: Path, keys: dict[str, Path], change: dict[str, Any]) -> None:
    path = signed / "signature.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **change}), encoding="utf-8")
    with pytest.raises(BundleError, match=r"`signature\.json` is damaged"):
        open_bundle(signed, trusted_keys=[keys["one.pub"]])


def test_a_signature_of_zeros_and_a_long_file_are_refused(signed: Path, keys: dict[str, Path]) -> None:
    path = signed / "signature.json"
    tree = json.loads(path.read_bytes())
    path.write_text(json.dumps({**tree, "signature": "0" * 128}), encoding="utf-8")
    with pytest.raises(BundleError, match="the signature is not one of this"):
        open_bundle(signed, trusted_keys=[keys["one.pub"]])
    path.write_text(json.dumps(tree) + " " * 4096, encoding="utf-8")
    with pytest.raises(BundleError, match=r"`signature\.json` has more than 4,096 bytes"):
        open_bundle(signed, trusted_keys=[keys["one.pub"]])


def test_a_damaged_bundle_is_not_signed(small_bundle: Path, tmp_path: Path, keys: dict[str, Path]) -> None:
    bundle = copy_of(small_bundle, tmp_path)
    (bundle / "weights.bin").write_bytes(b"")
    assert "`weights.bin` has 0 bytes" in error("sign", bundle, "--key", keys["one.pem"])
    assert not (bundle / "signature.json").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere.pem", "cannot be read (No such file or directory)"),
        ("one.pub", "must be an unencrypted private key in PEM format"),
        ("curve.pem", "must be an Ed25519 key"),
    ],
)
def test_an_unsuitable_key_is_named(small_bundle: Path, keys: dict[str, Path], name: str, words: str) -> None:
    key = keys["one.pem"].with_name(name)
    message = error("sign", small_bundle, "--key", key)
    assert f"Key `{key}`" in message
    assert words in message


def test_keys_are_for_a_bundle_that_is_not_open(small_bundle: Path) -> None:
    with pytest.raises(OptionError, match="`trusted_keys` has no effect on an opened bundle"):
        Translator.open(open_bundle(small_bundle), trusted_keys=[b""])


def test_without_the_package_only_signatures_are_missing(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    assert Translator.open(small_bundle, threads=1).translate([""])[0].text == ""
    with pytest.raises(ConfigError, match=r"^A signature needs `cryptography.*`: pip install 'edgeformer\[sign\]'\.$"):
        Translator.open(small_bundle, trusted_keys=[b""])
