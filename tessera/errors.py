"""Every error Tessera raises on purpose.

    TesseraError
    ├── InputError                 what the user gave is wrong; it will be wrong again
    │   ├── EventError             a change event that cannot be applied (field, reason)
    │   ├── PolicyError            a policy file or name
    │   ├── SourceError            a folder or a file of a source
    │   ├── QueryError             a search request
    │   ├── CaseError              a file of query cases, or one case of it
    │   ├── AuditError             a contract of the audit that breaks a rule (rule, place)
    │   ├── PlanError              a plan of the lab: a key of its file, or what the key leads to
    │   └── RefusedError           a step of a generation's life that is not allowed now (reason, next step)
    ├── SettingsError              settings or command line
    ├── UnavailableError           a server cannot be reached                      retriable
    ├── ShardError                 a shard's writer may not go on as it is
    │   ├── FencedError            another writer owns the shard
    │   ├── SequenceError          the shard moved under its writer (Redis lost data, or a race)
    │   ├── ForeignLogError        the Kafka partition holds another log than the one applied
    │   └── PartitionCountError    a topic has another partition count than recorded
    ├── StagingError               a staged blob expired before its commit         retriable
    ├── CorruptionError            stored bytes that fail their checksum or version
    └── StaleSnapshotError         a snapshot's blob is gone; take a new snapshot  retriable

``retriable`` says whether the same call can succeed later with nothing changed by the caller.
"""

from __future__ import annotations

from typing import Literal


class TesseraError(Exception):
    """Base of all errors raised on purpose; the message says what, where and what to do."""

    retriable = False


class InputError(TesseraError):
    """What the user gave is wrong."""


class EventError(InputError):
    """A change event that cannot be applied.

    ``reason`` is a stable word for counting (``invalid_json``, ``wrong_type``, ``gap_too_large``);
    ``field`` names the offending field, or is empty where the whole record is at fault.
    """

    def __init__(self, reason: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.field = field


class PolicyError(InputError):
    """A policy that is not known or not well formed."""


class SourceError(InputError):
    """A source's folder or file that cannot be read as asked."""


class QueryError(InputError):
    """A search request outside its bounds. ``reason`` is the stable word it is counted by."""

    def __init__(
        self, message: str, reason: Literal["out_of_bounds", "generation"] = "out_of_bounds"
    ) -> None:
        super().__init__(message)
        self.reason = reason


class CaseError(InputError):
    """A file of query cases that is not well formed, or a case that does not fit its document."""


class AuditError(InputError):
    """A contract of the audit that breaks a rule.

    ``rule`` is a stable word (``source_order``, ``overlap``, ``case_binding``); ``place`` says where.
    """

    def __init__(self, rule: str, place: str, message: str) -> None:
        super().__init__(f"{place}: {message} (rule {rule}): mend the contract, it is never repaired")
        self.rule = rule
        self.place = place


class PlanError(InputError):
    """A plan of the policy lab that is not well formed, or that leads to what is not there."""


class RefusedError(InputError):
    """A step of a generation's life that is not allowed as things stand.

    ``reason`` is a stable word (``superseded``, ``served``, ``held``, ``retention``); ``next_step`` says what
    the operator can do, and ends the message.
    """

    def __init__(self, reason: str, message: str, next_step: str) -> None:
        super().__init__(f"{message}; {next_step}")
        self.reason = reason
        self.next_step = next_step


class SettingsError(TesseraError):
    """Settings that are missing, contradictory or out of range."""


class UnavailableError(TesseraError):
    """A server that cannot be reached; the message names its address and what to do."""

    retriable = True


class ShardError(TesseraError):
    """A shard's writer may not go on as it is."""


class FencedError(ShardError):
    """Another writer has claimed the shard since."""


class SequenceError(ShardError):
    """The shard's head is not where its writer left it: Redis lost data, or two commits raced."""


class ForeignLogError(ShardError):
    """The Kafka partition does not continue the log that the shard has applied."""


class PartitionCountError(ShardError):
    """A topic has another partition count than the one recorded."""


class StagingError(TesseraError):
    """A staged blob is gone before the commit that would have kept it: stage again."""

    retriable = True


class CorruptionError(TesseraError):
    """Stored bytes that fail their checksum, or carry a version this build cannot read."""


class StaleSnapshotError(TesseraError):
    """A blob that a snapshot refers to is gone: take a new snapshot and ask again."""

    retriable = True
