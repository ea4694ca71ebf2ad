"""Which sources are declared, and what holds for those that are not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from tessera.events.change import SourceKind

RevisionFrom = Literal["event", "log"]

LOG_KINDS: tuple[SourceKind, ...] = ("devex", "github")


@dataclass(frozen=True, slots=True)
class SourceDeclaration:
    """What is fixed about one source.

    ``access`` is the default of its documents: ``"*"`` is everyone, empty means operators only.
    """

    name: str
    kind: SourceKind = "documents"
    revision_from: RevisionFrom = "log"
    access: tuple[str, ...] = ()

    @property
    def is_log(self) -> bool:
        """Whether its documents grow by appends and travel on the logs topic."""
        return self.kind in LOG_KINDS


class SourceCatalog:
    """The declared sources; any other name takes the defaults.

    An undeclared source named like a kind of log (``devex``, ``github``) has that kind.
    """

    def __init__(self, declarations: Iterable[SourceDeclaration] = ()) -> None:
        self._declared = {declaration.name: declaration for declaration in declarations}

    def __getitem__(self, name: str) -> SourceDeclaration:
        declared = self._declared.get(name)
        if declared is not None:
            return declared
        for kind in LOG_KINDS:
            if name == kind:
                return SourceDeclaration(name, kind=kind)
        return SourceDeclaration(name)

    @property
    def declared(self) -> tuple[SourceDeclaration, ...]:
        """The declared sources, in order of name."""
        return tuple(self._declared[name] for name in sorted(self._declared))
