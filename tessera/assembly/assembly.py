"""Assemblies by version: how hits become a context, as a release carries it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from tessera.errors import CorruptionError, SettingsError

Order = Literal["source", "score"]

_KNOWN: Final = {"joined": 1, "sections": 1, "sentences": 1}

MAX_HITS: Final = 1000
"""Hits that an assembly may look at: as many as a search finds. More would read that many texts at once."""


@dataclass(frozen=True, slots=True)
class Assembly:
    """How a context is made of hits (:mod:`tessera.assembly.assemble`), by name and revision.

    ``hits`` is how many are looked at. What is taken must be worth a share of the best, ``floor`` in an empty
    context, ``ceiling`` in a full one, in between as much more as the budget is used. ``order`` is that of
    the pieces: ``source``, documents by their best hit and each in the order of its text, or ``score``. A
    section's first chunk is added where ``parents`` pieces or more come from that section; 0: never.
    """

    name: str
    revision: int
    hits: int
    floor: float
    ceiling: float
    order: Order = "source"
    parents: int = 0

    def __post_init__(self) -> None:
        """CorruptionError where this build does not know how to assemble so."""
        if _KNOWN.get(self.name) != self.revision:
            known = ", ".join(f"{name} revision {revision}" for name, revision in _KNOWN.items())
            raise CorruptionError(
                f"assembly {self.name!r} revision {self.revision} is not known to this build: it knows "
                f"{known}; serve this release with the build that made it"
            )
        if not 1 <= self.hits <= MAX_HITS or not 0 <= self.floor <= self.ceiling <= 1:
            raise CorruptionError(
                f"assembly {self.id} needs 1 <= hits <= {MAX_HITS} and 0 <= floor <= ceiling <= 1, not "
                f"hits={self.hits}, floor={self.floor}, ceiling={self.ceiling}"
            )
        if self.order not in ("source", "score"):
            raise CorruptionError(f"assembly {self.id} has no order {self.order!r}: source or score")
        if self.parents < 0:
            raise CorruptionError(f"assembly {self.id} needs parents >= 0, not {self.parents}")

    @property
    def id(self) -> str:
        """``<name>@<revision>``, with ``:score`` behind it for that order."""
        return f"{self.name}@{self.revision}{':score' if self.order == 'score' else ''}"

    def to_value(self) -> dict[str, Any]:
        """The assembly as JSON values."""
        return {
            "name": self.name,
            "revision": self.revision,
            "hits": self.hits,
            "floor": self.floor,
            "ceiling": self.ceiling,
            "order": self.order,
            "parents": self.parents,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Assembly:
        """The assembly of :meth:`to_value`; raises as looking up and converting do, and CorruptionError.

        What it does not know is refused: a context made without it would be another release's.
        """
        unknown = sorted(map(str, value.keys() - cls.__dataclass_fields__.keys()))
        if unknown:
            raise CorruptionError(
                f"assembly {str(value['name'])[:50]!r} has {', '.join(unknown)[:100]}, which this build does "
                "not know: serve this release with the build that made it"
            )
        return cls(
            str(value["name"]),
            int(value["revision"]),
            int(value["hits"]),
            float(value["floor"]),
            float(value["ceiling"]),
            value["order"],
            int(value["parents"]),
        )


JOINED: Final = Assembly("joined", 1, hits=50, floor=0.0, ceiling=0.0)
SECTIONS: Final = Assembly("sections", 1, hits=50, floor=0.0, ceiling=0.0, parents=2)
"""One piece of a section says where it is from by its headings; two or more are read with what leads them."""

SENTENCES: Final = Assembly("sentences", 1, hits=50, floor=0.2, ceiling=0.65)
"""With lower shares a budget is filled with what hardly answers, with higher ones evidence that has few words
in common with the question is missed; a large budget may hold more of both (`bench/chunking_evaluation`)."""

ASSEMBLIES: Final[Mapping[str, Assembly]] = {
    "joined": JOINED,
    "sections": SECTIONS,
    "sentences": SENTENCES,
    "joined:score": replace(JOINED, order="score"),
    "sections:score": replace(SECTIONS, order="score"),
    "sentences:score": replace(SENTENCES, order="score"),
}
"""Assemblies by the names that people give."""


def assembly_named(name: str) -> Assembly:
    """The assembly of this name; :class:`~tessera.errors.SettingsError` where there is none."""
    if name not in ASSEMBLIES:
        raise SettingsError(f"there is no assembly {name[:50]!r}; there are {', '.join(ASSEMBLIES)}")
    return ASSEMBLIES[name]
