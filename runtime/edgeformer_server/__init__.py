"""An HTTP server for bundles: LibreTranslate's API, an API of its own, and a page.

Needs ``edgeformer[serve]``. :class:`~edgeformer_server.workspace.Workspace` and
:class:`~edgeformer_server.queue.batching.Batcher` do without it.
"""
