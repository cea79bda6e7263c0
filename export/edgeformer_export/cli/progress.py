"""Progress of an export on the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edgeformer_export.stages import StageProgress


@contextmanager
def shown_stages(*, quiet: bool) -> Iterator[StageProgress]:
    """Show the stages of an export as they are reported; see :func:`~edgeformer_runtime.cli.output.stages`."""
    from edgeformer_runtime.cli.output import stages

    with stages(quiet=quiet) as report:
        yield lambda stage, fraction: report(stage.text, fraction)
