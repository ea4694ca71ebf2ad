"""A caller: its name, what it may do, and what it may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

Role = Literal["reader", "monitor", "operator"]
"""Each may what the ones before it may. A reader finds and reads the documents that its principals may see. A
monitor also sees counts of everything: status, events, metrics, generations. The operator changes things."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)
EVERYONE: Final = "*"


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller. ``principals`` None sees every document, as the operator does."""

    name: str
    role: Role
    principals: frozenset[str] | None

    def may(self, role: Role) -> bool:
        """Whether the caller may what this role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


OPERATOR: Final = Caller("operator", "operator", None)


def caller(name: str, role: Role, principals: frozenset[str]) -> Caller:
    """A caller that was identified: principals say what readers and monitors see, the operator sees all."""
    return Caller(name, role, None if role == "operator" else principals | {EVERYONE})
