"""An HTTP server for bundles: LibreTranslate's API, an API of its own, and a page.

Needs ``edgeformer[serve]``. :class:`~edgeformer_runtime.workspace.workspace.Workspace` and
:class:`~edgeformer_runtime.serve.batching.Batcher` do without it.
"""
