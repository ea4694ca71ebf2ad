"""A server process of our own: one per data folder, with a log file, gone when its parent is gone."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from tessera.errors import SettingsError, UnavailableError

HOST = "127.0.0.1"
INSTALL = "pip install 'tessera-indexer[embedded]'"

LOCK_WAIT_S = 3.0
"""A server whose parent was killed needs a moment to end before its folder is free again."""

_POLL_S = 0.01
_PR_SET_PDEATHSIG = 1


def free_port() -> int:
    """A TCP port that nothing listens on at loopback right now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class DataLock:
    """Exclusive use of a data folder by one server: a locked file that holds the owner's process id.

    The kernel frees the lock when the last process that has the file open ends. The server inherits it, so
    the folder counts as used until the server itself is gone, whatever became of its parent.
    """

    def __init__(self, path: Path) -> None:
        """Lock ``path``. Raises :class:`SettingsError` where another process holds it."""
        self._file: IO[str] = path.open("a+")
        deadline = time.monotonic() + LOCK_WAIT_S
        while not self._try():
            if time.monotonic() > deadline:
                self._file.seek(0)
                owner = self._file.read().strip() or "unknown"
                self._file.close()
                raise SettingsError(
                    f"{path.parent} is in use by process {owner}: stop it, or choose another data folder"
                )
            time.sleep(_POLL_S)
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    @property
    def fileno(self) -> int:
        """The descriptor that a server must inherit."""
        return self._file.fileno()

    def release(self) -> None:
        """Let go of the folder, once no server has inherited it any more."""
        self._file.close()

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class ServerProcess:
    """A running server: its standard output and error go to ``log_path``, the run before to ``<log>.1``.

    It has a session of its own, so that Ctrl-C in a terminal reaches only the parent, which stops its
    servers in order. On Linux the kernel ends it with ``parent_death_signal`` when the parent ends in any
    way, SIGKILL included; elsewhere only :meth:`stop` does. The kernel takes the *thread* that started it
    for the parent, hence start it from the main thread.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path,
        lock: DataLock,
        *,
        stdin: bytes = b"",
        parent_death_signal: signal.Signals = signal.SIGKILL,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start ``command``; without ``environment`` it inherits nothing that could configure it."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(f"start {name} from the main thread: it would end together with this one")
        self.name = name
        self.log_path = log_path
        if log_path.exists():
            log_path.replace(log_path.with_name(log_path.name + ".1"))
        with log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock.fileno,),
                preexec_fn=_dies_with(os.getpid(), parent_death_signal),
                env=_bare_environment() if environment is None else dict(environment),
            )
        assert self._process.stdin is not None  # asked for above
        with contextlib.suppress(BrokenPipeError):  # ended at once: wait_ready tells why
            self._process.stdin.write(stdin)
            self._process.stdin.close()

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """The exit status, negative where a signal ended it; None while it runs."""
        return self._process.poll()

    def wait_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Wait until ``ready()``; an :class:`OSError` from it means not yet.

        Raises :class:`UnavailableError` with the end of the log where the server ends or does not get ready
        in time; the process is then stopped.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.running:
                status = self._process.returncode
                raise UnavailableError(
                    f"{self.name} ended with status {status} at its start: {self._log_end()}"
                )
            with contextlib.suppress(OSError):
                if ready():
                    return
            time.sleep(_POLL_S)
        self.stop(0)
        raise UnavailableError(f"{self.name} was not ready within {timeout_s:g} s: {self._log_end()}")

    def stop(self, grace_s: float) -> int:
        """Ask the server to end, end it after ``grace_s`` seconds, and return its exit status."""
        if self.running:
            self._process.terminate()
        try:
            return self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _log_end(self) -> str:
        """The last lines of the log, on one line, and where the log is."""
        lines = self.log_path.read_text(errors="replace").split("\n")[-6:]
        return f"{' | '.join(line.strip() for line in lines if line.strip())} (log: {self.log_path})"


def _bare_environment() -> dict[str, str]:
    """Nothing of the caller's environment configures a server; secrets in it stay here."""
    return {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}


def _dies_with(parent: int, death_signal: signal.Signals) -> Callable[[], None] | None:
    """What the child runs before the server: ask Linux for a signal when the parent is gone."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded here: nothing may be imported after the fork

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(death_signal))
        if os.getppid() != parent:  # it ended before the request
            os._exit(1)

    return ask
