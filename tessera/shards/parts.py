"""Large events that travel as several records with one key, put together again by the shard."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from tessera.documents.draft import Stamp
from tessera.errors import EventError
from tessera.events.change import Part
from tessera.events.parts import join_parts


class JoinError(EventError):
    """All parts are here and do not make up their event; ``payload`` is what they hold."""

    def __init__(self, error: EventError, payload: bytes) -> None:
        super().__init__(error.reason, str(error), error.field)
        self.payload = payload


@dataclass(slots=True)
class Group:
    """The parts of one event so far. ``stored`` maps part numbers to blob ids, ``loaded`` to their bytes."""

    count: int
    size_bytes: int
    stored: dict[int, str] = field(default_factory=dict)
    loaded: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Assembly:
    """All unfinished events of one key, oldest first, while a batch is applied.

    ``groups`` go by event and number of parts. ``dropped`` collects blob ids that no group needs any more,
    ``given_up`` what was there of events that cannot be finished.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    given_up: list[bytes] = field(default_factory=list)
    changed: bool = False

    @classmethod
    def decode(cls, data: bytes | None) -> Assembly:
        """Read the stored state of a key; one that cannot be read holds nothing, and is written anew."""
        if data is None:
            return cls()
        try:
            groups = {
                name: Group(count, size, {int(index): blob for index, blob in stored.items()})
                for name, count, size, stored in orjson.loads(data)
            }
        except (orjson.JSONDecodeError, ValueError, TypeError, AttributeError):
            return cls(changed=True)
        return cls(groups)

    def encode(self) -> bytes | None:
        """The stored state, None where nothing is unfinished."""
        if not self.groups:
            return None
        return orjson.dumps(
            [
                [name, group.count, group.size_bytes, {str(i): blob for i, blob in group.stored.items()}]
                for name, group in self.groups.items()
            ]
        )

    def blob_ids(self) -> list[str]:
        """Ids of all stored parts."""
        return [blob for group in self.groups.values() for blob in group.stored.values()]

    def give_up_damaged(self) -> None:
        """Give up events that miss a part they had."""
        for name in [n for n, group in self.groups.items() if group.stored.keys() - group.loaded.keys()]:
            self._give_up(name)

    def add(self, part: Part, stamp: Stamp) -> bytes | None:
        """Take one part in; return the whole event once its last part is here.

        Raises JoinError (``invalid_part``) where the parts do not make up the event they announce.
        """
        name = f"{part.group}:{part.count}"
        group = self.groups.setdefault(name, Group(part.count, part.size_bytes))
        self.changed = True
        if group.loaded.get(part.index) != part.payload:
            if part.index in group.stored:
                self.dropped.append(group.stored[part.index])
            group.loaded[part.index] = part.payload
            group.stored[part.index] = f"part/{stamp.text_id}"
        if len(group.loaded) < group.count:
            return None
        event = self._finish(name, part.group)
        for other in [n for n in self.groups if n.startswith(f"{part.group}:")]:
            self.dropped += self.groups.pop(other).stored.values()
        return event

    def _finish(self, name: str, event_digest: str) -> bytes:
        group = self.groups.pop(name)
        self.dropped += group.stored.values()
        parts = [Part(event_digest, i, group.count, group.size_bytes, p) for i, p in group.loaded.items()]
        try:
            return join_parts(parts)
        except EventError as error:
            raise JoinError(error, _joined(group)) from error

    def evict(self, most: int) -> None:
        """Give up the oldest unfinished events, so that ``most`` are left."""
        while len(self.groups) > most:
            self._give_up(next(iter(self.groups)))

    def _give_up(self, name: str) -> None:
        group = self.groups.pop(name)
        self.changed = True
        self.dropped += group.stored.values()
        self.given_up.append(_joined(group))


def _joined(group: Group) -> bytes:
    return b"".join(group.loaded[index] for index in sorted(group.loaded))
