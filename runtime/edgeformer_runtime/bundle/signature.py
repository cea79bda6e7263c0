"""Ed25519 signatures of bundles: who made a bundle, where hashes only tell that it arrived as it was made.

A signature covers the manifest, which has the hash of every other file. It is stored beside it, in a file of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from edgeformer_runtime.bundle.plain_files import is_plain, read_plain, reading, shortened
from edgeformer_runtime.contract import MANIFEST_FILE, SIGNATURE_FILE
from edgeformer_runtime.errors import BundleError, ConfigError, missing_package
from edgeformer_runtime.files import write_atomically
from edgeformer_runtime.limits import MAX_MANIFEST_BYTES, MAX_SIGNATURE_BYTES

Key = str | Path | bytes
"""A key in PEM format: the path of its file, or its content."""

_PURPOSE = b"edgeformer bundle manifest\n"
"""Precedes the manifest, so that a signature for another purpose is never one of a bundle."""


class Signature(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Content of the signature file."""

    algorithm: Literal["ed25519"] = "ed25519"
    """Signature scheme (RFC 8032)."""
    public_key: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """Key of the signer, in lowercase hexadecimal."""
    signature: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{128}\Z")]
    """The signature, in lowercase hexadecimal."""


def sign_manifest(path: Path, key: Key) -> Signature:
    """Sign a bundle that has been checked, and write the signature into its folder, in place of an earlier one.

    Args:
        path: the bundle's folder.
        key: the private key.

    Raises:
        BundleError: the manifest cannot be read.
        ConfigError: the key cannot be read, or the package for signatures is not installed.
    """
    private = _load(key, private=True)
    with reading(path / MANIFEST_FILE):
        data = read_plain(path / MANIFEST_FILE, MAX_MANIFEST_BYTES)
    signature = Signature(public_key=_raw(private.public_key()), signature=private.sign(_PURPOSE + data).hex())
    write_atomically(path / SIGNATURE_FILE, msgspec.json.format(msgspec.json.encode(signature), indent=1))
    return signature


def check_signature(path: Path, manifest: bytes, trusted_keys: Sequence[Key]) -> None:
    """Check that one of the trusted keys has signed a bundle.

    Args:
        path: the bundle's folder.
        manifest: content of its manifest.
        trusted_keys: public keys; with none, no bundle is trusted.

    Raises:
        BundleError: the bundle has no signature, one of another key, or one of another manifest.
        ConfigError: a key cannot be read, or the package for signatures is not installed.
    """
    trusted = {_raw(public): public for public in (_load(key, private=False) for key in trusted_keys)}
    with reading(path / SIGNATURE_FILE):
        if not is_plain(path / SIGNATURE_FILE):
            raise BundleError(f"Bundle `{path}` is not signed: it has no `{SIGNATURE_FILE}`.")
        try:
            data = read_plain(path / SIGNATURE_FILE, MAX_SIGNATURE_BYTES)
            signature = msgspec.json.decode(data, type=Signature)
        except (msgspec.DecodeError, ValueError) as error:
            raise BundleError(f"Bundle `{path}`: `{SIGNATURE_FILE}` is damaged: {shortened(error)}.") from None
    if (public := trusted.get(signature.public_key)) is None:
        raise BundleError(f"Bundle `{path}` is signed by key {signature.public_key}, which is not a trusted key.")
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(bytes.fromhex(signature.signature), _PURPOSE + manifest)
    except InvalidSignature:
        raise BundleError(
            f"Bundle `{path}`: the signature is not one of this `{MANIFEST_FILE}`; the bundle was changed after it was "
            "signed."
        ) from None


def _load(key: Key, *, private: bool) -> Any:
    """Load an Ed25519 key."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as error:
        raise ConfigError(missing_package("A signature", error.name, "sign")) from None
    name = "The key" if isinstance(key, bytes) else f"Key `{key}`"
    kind = "private" if private else "public"
    try:
        data = key if isinstance(key, bytes) else Path(key).read_bytes()
        loaded: object = (
            serialization.load_pem_private_key(data, password=None)
            if private
            else serialization.load_pem_public_key(data)
        )
    except OSError as error:
        raise ConfigError(f"{name} cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{name} must be an unencrypted {kind} key in PEM format.") from None
    if not isinstance(loaded, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise ConfigError(f"{name} must be an Ed25519 key; make one with `openssl genpkey -algorithm ed25519`.")
    return loaded


def _raw(public: Any) -> str:
    """The 32 bytes of a public key, in hexadecimal."""
    raw: bytes = public.public_bytes_raw()
    return raw.hex()
