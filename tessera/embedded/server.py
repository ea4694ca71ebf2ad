"""What the embedded servers have in common: start, stop, and the folder they own."""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tessera.embedded.process import DataLock, ServerProcess, free_port
from tessera.errors import UnavailableError

PORT_ATTEMPTS = 3
"""Another program may take a free port between its choice and the server's use of it."""

_PORT_TAKEN = "in use"
"""What both servers' logs say when they cannot bind."""


class EmbeddedServer(ABC):
    """One server on loopback, a child of this process, that owns ``data_dir``.

    ``port`` 0 takes a free one at each start. Use it as a context manager or by :meth:`start` and
    :meth:`stop`, from the main thread. Its log is ``<file_stem>.log`` in the folder.
    """

    name: ClassVar[str]
    file_stem: ClassVar[str]
    start_timeout_s: ClassVar[float]
    stop_grace_s: ClassVar[float]
    parent_death_signal: ClassVar[signal.Signals]
    keeps_data: ClassVar[bool]
    """Whether a server that starts again in the same folder holds what it held."""

    def __init__(self, data_dir: Path, port: int = 0) -> None:
        self.data_dir = data_dir
        self.port = port
        self._fixed_port = port
        self._lock: DataLock | None = None
        self._process: ServerProcess | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id; None where it does not run."""
        return self._process.pid if self._process is not None and self._process.running else None

    @property
    def status(self) -> int | None:
        """The exit status of a server that ended by itself, negative where a signal ended it; else None."""
        return None if self._process is None else self._process.status

    @property
    def log_path(self) -> Path:
        """The server's log file; that of the run before has ``.1`` behind its name."""
        return self.data_dir / f"{self.file_stem}.log"

    def start(self) -> Self:
        """Start the server and return once it answers.

        Raises :class:`~tessera.errors.SettingsError` where it is not installed or its folder is in use, and
        :class:`UnavailableError` where it does not come up.
        """
        if self._process is not None:
            raise RuntimeError(f"{self.name} has been started already")
        self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds documents
        self._lock = DataLock(self.data_dir / f"{self.file_stem}.lock")
        attempts = 1 if self._fixed_port else PORT_ATTEMPTS
        try:
            while True:
                attempts -= 1
                try:
                    self._launch(self._lock)
                    return self
                except UnavailableError as error:
                    if not attempts or _PORT_TAKEN not in str(error):
                        raise
        except BaseException:
            self.stop()
            raise

    def relaunch(self) -> None:
        """Start a server that has died again, on the port it had; return before it answers."""
        if self._lock is None or self.pid is not None:
            raise RuntimeError(f"{self.name} has not died")
        self._process = self._spawn(self._lock)

    def wait_ready(self) -> None:
        """Wait until the server answers. Raises :class:`UnavailableError` where it does not come up."""
        if self._process is not None:
            self._process.wait_ready(self._answers, self.start_timeout_s)

    def stop(self) -> None:
        """Stop the server and free its folder. Does nothing where it was not started."""
        if self._process is not None:
            self._process.stop(self.stop_grace_s)
            self._process = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, lock: DataLock) -> None:
        """Start the process once and wait until it answers."""
        self.port = self._fixed_port or free_port()
        self._process = self._spawn(lock)
        self.wait_ready()

    def _spawn(self, lock: DataLock) -> ServerProcess:
        command, stdin = self._command()
        return ServerProcess(
            self.name,
            command,
            self.log_path,
            lock,
            stdin=stdin,
            parent_death_signal=self.parent_death_signal,
        )

    @abstractmethod
    def _command(self) -> tuple[list[str], bytes]:
        """Program, arguments and standard input; uses :attr:`port`."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server is ready. An :class:`OSError` means not yet."""
