"""Translators in the worker processes of a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from edgeformer_runtime.bundle.open import file_sha256
from edgeformer_runtime.contract import MANIFEST_FILE
from edgeformer_runtime.engines.base import BundleSession
from edgeformer_runtime.engines.cpus import available_cpus
from edgeformer_runtime.errors import BundleError, ConfigError, DeviceError, EdgeformerError, missing_package
from edgeformer_runtime.translator import Translator

BlockT = TypeVar("BlockT")
ResultT = TypeVar("ResultT")
Work = Callable[[Translator[BundleSession], BlockT], ResultT]
"""What a worker does with a block. It is pickled, and so are blocks and results."""

IN_FLIGHT = 2
"""Blocks that a worker has at a time: the one it translates, and the next."""


@dataclass(frozen=True)
class RayWorkers:
    """Workers that translate blocks with a bundle, each a process with a copy of the weights.

    Every machine of the cluster needs the same bundle at the same path, and the same version of edgeformer. If a worker
    dies, Ray starts another, which translates its blocks.
    """

    bundle: Path
    """Absolute path of the bundle."""
    manifest_sha256: str
    """SHA-256 of its manifest; a worker that has another bundle at this path refuses to translate."""
    engine: dict[str, Any]
    """Arguments of :meth:`Translator.open`, where ``workers`` is the number of processes; 0 is one per CPU of the
    cluster, or per GPU on CUDA. ``threads=0`` divides the CPUs among them."""
    address: str | None = None
    """Address of an existing cluster; ``None`` starts one on this machine, and stops it at the end."""

    @staticmethod
    def of(translator: Translator[BundleSession], engine: dict[str, Any], address: str | None = None) -> RayWorkers:
        """Workers with the bundle that a translator has opened.

        Raises:
            ConfigError: ``edgeformer[ray]`` is not installed.
        """
        _imported()
        path = translator.bundle.path.resolve()
        return RayWorkers(path, file_sha256(path / MANIFEST_FILE), engine, address)

    def map(
        self, work: Work[BlockT, ResultT], blocks: Iterable[tuple[int, BlockT]]
    ) -> Generator[tuple[int, ResultT], None, None]:
        """Work on blocks, and yield the number and the result of each as it is ready. Close it to stop early.

        Args:
            work: what to do with a translator and a block.
            blocks: numbered blocks; each is taken when a worker has room for it.

        Raises:
            BundleError: a worker has no bundle at the same path, or another one.
            ConfigError: ``edgeformer[ray]`` is not installed.
            DeviceError: the cluster cannot be reached, or was lost.
            EdgeformerError: ``work`` raised it.
        """
        blocks = iter(blocks)
        first = next(blocks, None)
        if first is None:
            return
        with _cluster(self._local_cpus(), self.address) as ray:
            try:
                for number, outcome in self._outcomes(ray, work, chain([first], blocks)):
                    if isinstance(outcome, EdgeformerError):
                        raise outcome
                    yield number, outcome
            except ray.exceptions.RayTaskError:  # a defect, with the worker's traceback
                raise
            except ray.exceptions.RayError as error:
                raise DeviceError(f"The Ray cluster was lost: {_first_line(error)}.") from None

    def _outcomes(
        self, ray: Any, work: Work[BlockT, ResultT], blocks: Iterator[tuple[int, BlockT]]
    ) -> Iterator[tuple[int, Any]]:
        """Results, or the errors in their place."""
        workers, threads = self._division(ray)
        actor = ray.remote(_Worker).options(
            num_cpus=threads, num_gpus=1 if self._on_gpu else None, max_restarts=-1, max_task_retries=-1
        )
        started = [actor.remote(self, threads, work) for _ in range(workers)]
        starting = {worker.__ray_ready__.remote(): worker for worker in started}
        running: dict[Any, tuple[Any, int]] = {}
        is_last = False
        while running or not is_last:
            (reference,), _ = ray.wait([*running, *starting], num_returns=1)
            result = ray.get(reference)
            worker, number = running.pop(reference) if reference in running else (starting.pop(reference), None)
            for _ in range(IN_FLIGHT if number is None else 1):
                following = next(blocks, None)
                is_last = following is None
                if following is not None:
                    running[worker.translate.remote(following[1])] = worker, following[0]
            if number is not None:
                yield number, result

    @property
    def _on_gpu(self) -> bool:
        return bool(self.engine.get("device", "cpu") != "cpu")

    def _local_cpus(self) -> int:
        """CPUs of a cluster that has room for all workers."""
        needed: int = self.engine.get("workers", 1) * max(1, self.engine.get("threads", 0))
        return max(available_cpus(), needed)

    def _division(self, ray: Any) -> tuple[int, int]:
        """Number of workers, and of threads of each."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        cpus = int(sum(node.get("CPU", 0) for node in nodes))
        gpus = int(sum(node.get("GPU", 0) for node in nodes))
        threads = self.engine.get("threads", 0)
        workers = self.engine.get("workers", 1) or max(1, gpus if self._on_gpu else cpus // max(1, threads))
        largest = int(max(node.get("CPU", 0) for node in nodes))
        return workers, threads or max(1, min(cpus // workers, largest))


class _Worker:
    """What runs in a worker process. An :class:`EdgeformerError` is a result: Ray would wrap an exception, and restart
    a worker that cannot open its bundle forever."""

    def __init__(self, workers: RayWorkers, threads: int, work: Work[Any, Any]) -> None:
        self.workers, self.threads, self.work = workers, threads, work
        self.translator: Translator[BundleSession] | None = None

    def translate(self, block: Any) -> Any:
        """Return the result of a block, or the error in its place."""
        try:
            self.translator = self.translator or self._opened()
            return self.work(self.translator, block)
        except EdgeformerError as error:
            return error

    def _opened(self) -> Translator[BundleSession]:
        path = self.workers.bundle
        translator = Translator.open(path, **{**self.workers.engine, "workers": 1, "threads": self.threads})
        if file_sha256(path / MANIFEST_FILE) != self.workers.manifest_sha256:
            raise BundleError(f"Bundle `{path}` on `{socket.gethostname()}` is not the same; copy it to every machine.")
        return translator


@contextmanager
def _cluster(cpus: int, address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine; yields the package ``ray``."""
    ray = _imported()
    if address is not None:
        _check_reachable(address)
    own = {"num_cpus": cpus, "include_dashboard": False} if address is None else {}
    try:
        ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"Ray cluster `{address}` cannot be reached" if address else "Ray cannot be started"
        raise DeviceError(f"{where}: {_first_line(error)}.") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself may try for many minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():  # such as `auto`
        return
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), timeout=30).close()
    except (OSError, OverflowError) as error:
        raise DeviceError(f"Ray cluster `{address}` cannot be reached: {error}.") from None


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # that of the command; Ray's default of 15 yields to anything
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # else Ray warns of its own workers' arguments
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ConfigError(missing_package("The engine `ray`", error.name, "ray")) from None
    return ray


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
