"""A semaphore whose holders take turns, so that no thread waits for long."""

from __future__ import annotations

from collections import deque
from threading import Lock


class FairSemaphore:
    """Lets a number of threads work at a time, in the order in which they ask.

    Args:
        count: number of threads.
    """

    def __init__(self, count: int) -> None:
        self._lock, self._free = Lock(), count
        self._line = deque[Lock]()
        """The threads that wait, each for its lock to be released."""

    def acquire(self, *, first: bool = False) -> None:
        """Wait for a turn; for the next one, if ``first`` is set."""
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine = self._queued()
            if first:
                self._line.rotate(1)
        mine.acquire()

    def release(self) -> None:
        """End a turn."""
        with self._lock:
            if self._line:
                self._line.popleft().release()
            else:
                self._free += 1

    def give_way(self) -> None:
        """Let those who wait work first, once each."""
        with self._lock:
            if not self._line:
                return
            mine = self._queued()
            self._line.popleft().release()
        mine.acquire()

    def _queued(self) -> Lock:
        mine = Lock()
        mine.acquire()
        self._line.append(mine)
        return mine
