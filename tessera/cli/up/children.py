"""Child processes of ``tessera up``: started, watched, started again when they die, stopped by their pid."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tessera.embedded.process import DataLock, ServerProcess

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
"""A child that cannot start must not take a core by trying, nor be left down once its trouble is over."""

HEALTHY_S = 30.0
"""A child that ran this long starts again after the shortest pause."""

POLL_S = 0.2

TAIL_BYTES = 8192
RECENT_S = 5.0
"""An older error is of something else: the process lived on after it."""

_LOGGED = re.compile(r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),\d{3} (?P<level>[A-Z]+) ")


class Child:
    """One process of Tessera itself. ``changed`` is called with a line for people when its state changes."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path,
        lock: DataLock,
        environment: Mapping[str, str],
        changed: Callable[[str], None],
    ) -> None:
        self.name = name
        self.restarts = 0
        self._command = command
        self._log_path = log_path
        self._lock = lock
        self._environment = {**os.environ, **environment}
        self._changed = changed
        self._process: ServerProcess | None = None
        self._stopping = False

    @property
    def state(self) -> str:
        """``running``, ``restarting``, or ``stopped``."""
        if self._stopping or self._process is None:
            return "stopped"
        return "running" if self._process.running else "restarting"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self._process.running else None

    def start(self) -> None:
        """Start it. From the main thread only."""
        self._process = ServerProcess(
            self.name,
            self._command,
            self._log_path,
            self._lock,
            parent_death_signal=signal.SIGTERM,
            environment=self._environment,
        )

    async def keep_running(self) -> None:
        """Start it again whenever it ends, after a pause that grows while it keeps ending at once."""
        clock = asyncio.get_running_loop().time
        pause_s, started = FIRST_PAUSE_S / 2, clock()
        while not self._stopping:
            await asyncio.sleep(POLL_S)
            if self._process is None or self._process.running or self._stopping:
                continue
            pause_s = FIRST_PAUSE_S if clock() - started >= HEALTHY_S else min(2 * pause_s, LONGEST_PAUSE_S)
            status = self._process.status
            words = last_words(self._log_path, status, time.time())
            why = f"{words} (log: {self._log_path})" if words else f"its log is {self._log_path}"
            self._changed(f"{self.name} ended with status {status}, starts again in {pause_s:g} s: {why}")
            await asyncio.sleep(pause_s)
            if not self._stopping:
                self.restarts += 1
                started = clock()
                self.start()

    async def stop(self, grace_s: float) -> None:
        """Ask it to end, wait up to ``grace_s`` seconds, then end it."""
        self._stopping = True
        if self._process is not None:
            await asyncio.to_thread(self._process.stop, grace_s)


def last_words(log_path: Path, status: int | None, now_s: float) -> str:
    """The line of a log that says why its process ended; empty where none does.

    That is what a process that ended by itself wrote last without a time before it (our own complaint, the
    end of a traceback), else the last error logged in the seconds before ``now_s``.
    """
    with log_path.open("rb") as log:
        log.seek(max(0, log_path.stat().st_size - TAIL_BYTES))
        lines = [line.strip() for line in log.read().decode(errors="replace").split("\n") if line.strip()]
    if lines and not _LOGGED.match(lines[-1]):
        return lines[-1] if status is not None and status > 0 else ""
    for line in reversed(lines):
        logged = _LOGGED.match(line)
        if logged is not None and logged["level"] in ("ERROR", "CRITICAL"):
            at_s = time.mktime(time.strptime(logged["time"], "%Y-%m-%d %H:%M:%S"))
            return line if now_s - at_s <= RECENT_S else ""
    return ""
