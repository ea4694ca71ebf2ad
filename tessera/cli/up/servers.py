"""The embedded servers of ``tessera up``, watched: one that kept its data starts again, another ends all."""

from __future__ import annotations

import asyncio

from tessera.cli.up.children import FIRST_PAUSE_S, HEALTHY_S, LONGEST_PAUSE_S
from tessera.cli.up.screen import Announcer
from tessera.embedded.server import EmbeddedServer
from tessera.errors import UnavailableError

POLL_S = 0.2


async def keep_serving(server: EmbeddedServer, announce: Announcer) -> None:
    """Watch the server without end, and start it again on its port when it dies.

    Raises :class:`UnavailableError` where it does not come up again, and at once where what it held is gone
    with it: going on with an empty log would pass over changes that nobody has applied.
    """
    clock = asyncio.get_running_loop().time
    pause_s, started = FIRST_PAUSE_S / 2, clock()
    while True:
        await asyncio.sleep(POLL_S)
        if server.pid is not None:
            continue
        ended = f"{server.name} ended with status {server.status}"
        if not server.keeps_data:
            raise UnavailableError(
                f"{ended}, and what it held is gone: everything is stopped. Start `tessera up` again: it "
                "compares its folders with the index; changes published just before may have to be published "
                f"again (log: {server.log_path})"
            )
        pause_s = FIRST_PAUSE_S if clock() - started >= HEALTHY_S else min(2 * pause_s, LONGEST_PAUSE_S)
        announce("trouble", f"{ended}, starts again in {pause_s:g} s (log: {server.log_path}.1)")
        await asyncio.sleep(pause_s)
        server.relaunch()
        started = clock()
        await asyncio.to_thread(server.wait_ready)
        announce("recovered", f"{server.name} answers again")
