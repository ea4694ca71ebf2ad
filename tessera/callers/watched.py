"""Files that are read again once they were changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from tessera.errors import SettingsError

T = TypeVar("T")

Signature = tuple[int, int, int]


class Watched(Generic[T]):
    """What a file holds, parsed anew whenever its time, size or inode is another.

    A file that cannot be read or parsed is an error at every reading until it is mended: what it held before
    may name somebody who was taken out of it.
    """

    def __init__(self, path: Path, parse: Callable[[bytes, str], T]) -> None:
        self._path = path
        self._parse = parse
        self._lock = threading.Lock()
        self._held: tuple[Signature, T] | None = None

    def read(self) -> T:
        """What it holds now. :class:`~tessera.errors.SettingsError` where that cannot be told."""
        with self._lock:
            try:
                status = self._path.stat()
                signature = (status.st_mtime_ns, status.st_size, status.st_ino)
                if self._held is None or self._held[0] != signature:
                    self._held = None
                    self._held = signature, self._parse(self._path.read_bytes(), str(self._path))
            except OSError as error:
                raise SettingsError(f"{self._path}: cannot be read ({error.strerror})") from None
            return self._held[1]
