"""The command ``sign``: says who made a bundle."""

from __future__ import annotations

from pathlib import Path

import click

from edgeformer_runtime.cli import options


@click.command()
@options.bundle
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path),
    help="Private Ed25519 key in PEM format, as `openssl genpkey -algorithm ed25519` writes it.",
)
def sign(bundle: Path, key: Path) -> None:
    """Sign a bundle.

    Checks all hashes of BUNDLE, signs its manifest, and writes the signature to `signature.json` in the folder. Whoever
    has the public key can then tell that the bundle is yours: `--trusted-key` of `edgeformer verify` and `translate`.
    """
    from edgeformer_runtime.bundle.open import open_bundle
    from edgeformer_runtime.bundle.signature import sign_manifest
    from edgeformer_runtime.cli.output import console

    signature = sign_manifest(open_bundle(bundle).path, key)
    console().print(f"Signed by key {signature.public_key}", soft_wrap=True)
