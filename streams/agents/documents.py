"""The agent of documents: whole documents, upserted and deleted."""

from __future__ import annotations

from typing import Any

from faust.types import AgentT, AppT, StreamT

from streams.batches import consume
from streams.ownership import Ownership
from tessera.events.topics import DOCUMENTS
from tessera.limits import Limits


def attach(app: AppT[Any], ownership: Ownership, limits: Limits) -> AgentT[Any]:
    """Add the agent of ``tessera.documents`` to the app and return it."""

    async def documents(stream: StreamT[Any]) -> None:
        await consume(stream, app, ownership, limits)

    topic = app.topic(DOCUMENTS, key_type=bytes, value_type=bytes)
    return app.agent(topic, name="documents")(documents)
