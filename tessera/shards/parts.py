"""Large events that travel as several records with one key, put together again by the shard."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from tessera.documents.draft import Stamp
from tessera.errors import CorruptionError, EventError
from tessera.events.change import Part
from tessera.events.parts import join_parts
from tessera.limits import Limits


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

    ``dropped`` collects blob ids that no group needs any more.
    """

    groups: dict[str, Group] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    changed: bool = False

    @classmethod
    def decode(cls, data: bytes | None, key: str) -> Assembly:
        """Read the stored state of a key; raises CorruptionError naming it."""
        if data is None:
            return cls()
        try:
            groups = {
                name: Group(count, size, {int(index): blob for index, blob in stored.items()})
                for name, count, size, stored in orjson.loads(data)
            }
        except (orjson.JSONDecodeError, ValueError, TypeError, AttributeError) as error:
            raise CorruptionError(
                f"the parts held for {key!r} cannot be read ({error}): publish the document again"
            ) from error
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

    def add(self, part: Part, stamp: Stamp) -> bytes | None:
        """Take one part in; return the whole event once its last part is here.

        Raises EventError (``invalid_part``) where the part contradicts the others of its group.
        """
        group = self.groups.setdefault(part.group, Group(part.count, part.size_bytes))
        if (group.count, group.size_bytes) != (part.count, part.size_bytes):
            raise EventError(
                "invalid_part",
                f"part {part.index} of group {part.group!r} announces {part.count} parts of "
                f"{part.size_bytes} bytes, earlier parts {group.count} of {group.size_bytes}: publish again",
            )
        self.changed = True
        group.loaded[part.index] = part.payload
        group.stored.setdefault(part.index, f"part/{stamp.text_id}")
        if len(group.loaded) < group.count:
            return None
        return self._finish(part.group)

    def _finish(self, name: str) -> bytes:
        group = self.groups.pop(name)
        self.dropped += group.stored.values()
        return join_parts(
            [
                Part(name, index, group.count, group.size_bytes, payload)
                for index, payload in group.loaded.items()
            ]
        )

    def evict(self, limits: Limits) -> list[bytes]:
        """Give up the oldest unfinished events over the bound; returns what was there of each."""
        given_up = []
        while len(self.groups) > limits.max_open_groups:
            group = self.groups.pop(next(iter(self.groups)))
            self.dropped += group.stored.values()
            given_up.append(b"".join(group.loaded[index] for index in sorted(group.loaded)))
        return given_up
