"""Points where tests can kill the process, between every pair of steps of the commit order.

``TESSERA_FAILPOINT=batch.staged`` sends SIGKILL to the process when it first reaches that point,
``batch.staged:3`` when it does so for the third time. Unset, a point costs one dictionary lookup.
"""

from __future__ import annotations

import os
import signal

from tessera.errors import SettingsError

VARIABLE = "TESSERA_FAILPOINT"

NAMES = (
    "shard.claimed",  # the fence is taken, nothing has been read
    "batch.received",  # records are in hand, nothing has been decoded
    "batch.decoded",
    "batch.loaded",
    "batch.built",
    "batch.staged",  # blobs are written, not yet kept
    "batch.committed",  # the shard has the batch, the worker does not know it
    "batch.acked",  # Kafka's offset has not moved yet
    "generation.adopted",  # the shard writes another set of generations from here on
    "backfill.staged",
    "backfill.committed",
    "backfill.completed",
    "contract.stepped",  # some of a given-up generation's segments are gone
    "control.published",  # the control log has the step, the registry has not
    "control.put",  # the registry has it, the operator was not told
    "merge.staged",
    "merge.committed",
    "outbox.produced",  # the broker has the dead letter, the outbox still lists it
)
"""Every failpoint, in the order in which one batch reaches them."""

_hits: dict[str, int] = {}


def failpoint(name: str) -> None:
    """Kill the own process with SIGKILL where ``TESSERA_FAILPOINT`` names this point and this hit."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    point, _, count = wanted.partition(":")
    if point not in NAMES or not (count or "1").isdigit():
        raise SettingsError(
            f"{VARIABLE}={wanted!r}: give NAME or NAME:HIT, where NAME is one of {', '.join(NAMES)}"
        )
    if point != name:
        return
    _hits[name] = _hits.get(name, 0) + 1
    if _hits[name] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
