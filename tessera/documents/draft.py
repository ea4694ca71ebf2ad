"""One document while a batch of changes is applied to it: the rules of order, and what comes of them.

Per document the greater revision wins in any order of arrival. Equal revisions: the same digest is no
change, a delete outranks any content, else the greater digest wins, so that all replicas agree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tessera.documents.digests import document_digest, log_digest
from tessera.documents.log import LogText, count_lines
from tessera.documents.record import EPOCH_STEP, DocumentRecord, order_digest
from tessera.errors import CorruptionError, EventError
from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Append, ByteRange, Change, Delete, MediaType, Upsert, document_key
from tessera.limits import Limits

NO_REVISION = -1
"""The floor that a null value leaves where nothing was held: below every revision an event may bring."""

LOG_MEDIA_TYPES: dict[str, MediaType] = {"devex": "text/x-run-log", "github": "text/x-ci-log"}


class Stamp(NamedTuple):
    """Where a change stood in its log. ``replayed_from``: the log revision a dead letter had at first."""

    epoch: int
    offset: int
    timestamp_ms: int
    replayed_from: int | None = None

    @property
    def log_revision(self) -> int:
        """The revision that the log gives: epoch * 2**40 + offset."""
        if self.replayed_from is not None:
            return self.replayed_from
        return self.epoch * EPOCH_STEP + self.offset

    @property
    def text_id(self) -> str:
        """The id of a text that begins with this record; no other record of the shard shares it."""
        return f"{self.epoch:x}-{self.offset:x}"


class Draft:
    """A document's state after some changes of a batch.

    ``held`` is what the shard held before the batch. After the changes, ``record`` is what it shall hold
    (its text fields are filled in when the text is stored) and ``text`` the log's or document's bytes;
    ``fresh`` says that the text is a new one, stored and cut from its start.
    ``damage`` is why the held text cannot be read: appends are refused then. ``history_lost`` says that the
    held record cannot be read either.
    """

    def __init__(
        self, declaration: SourceDeclaration, doc_id: str, held: DocumentRecord | None, limits: Limits
    ) -> None:
        self.declaration = declaration
        self.doc_id = doc_id
        self.held = held
        self.record = held
        self.text: LogText | None = None
        self.fresh = False
        self.changed = False
        self.damage: CorruptionError | None = None
        self.history_lost = False
        self._limits = limits
        self._awaits_text_id = False

    @property
    def key(self) -> str:
        """``<source>/<doc_id>``."""
        return document_key(self.declaration.name, self.doc_id)

    def hold_text(self, text: LogText, begins_anew: bool) -> None:
        """Give the draft the held text that its appends need.

        ``begins_anew``: the text, given whole, is to be stored under a new id and cut from its start.
        """
        self.text = text
        self.fresh = self._awaits_text_id = begins_anew

    def apply(self, change: Change, stamp: Stamp) -> bool:
        """Apply one change; False where it is stale or changes nothing. Raises EventError (dead letter)."""
        self._refuse_superseded_replay(stamp)
        if isinstance(change, Append):
            applied = self._append(change, stamp)
        elif isinstance(change, Delete):
            applied = self._delete(change, stamp)
        else:
            applied = self._upsert(change, stamp)
        if applied and self.record is not None:
            self.record = replace(self.record, log_revision=stamp.log_revision)
            self.changed = True
        return applied

    def _refuse_superseded_replay(self, stamp: Stamp) -> None:
        if stamp.replayed_from is None or self.record is None:
            return
        if self.record.log_revision > stamp.replayed_from:
            raise EventError(
                "replay_superseded",
                f"document {self.key!r} has applied a later change since: discard this dead letter, "
                "or publish the document's current content",
            )

    def _revision(self, change: Upsert | Delete, stamp: Stamp) -> int:
        if self.declaration.revision_from == "event" and change.revision is not None:
            return change.revision
        return stamp.log_revision

    def _upsert(self, change: Upsert, stamp: Stamp) -> bool:
        data = change.content.encode()
        if len(data) > self._limits.max_document_bytes:
            raise EventError(
                "document_too_large",
                f"{len(data)} bytes of text are over the maximum of {self._limits.max_document_bytes}: "
                "split the document, or raise max_document_bytes",
                "content",
            )
        access = tuple(sorted(set(self.declaration.access if change.access is None else change.access)))
        content = log_digest(data) if self.declaration.is_log else document_digest(data)
        digest = order_digest(content, change.media_type, access)
        revision = self._revision(change, stamp)
        held = self.record
        if held is not None and (held.revision, held.deleted, held.order_digest) >= (revision, False, digest):
            return False
        self._begin(revision, digest, stamp, change.media_type, access, data)
        self._note_undecodable(change.undecodable, 0)
        return True

    def _begin(
        self,
        revision: int,
        digest: str,
        stamp: Stamp,
        media_type: MediaType,
        access: tuple[str, ...],
        data: bytes,
    ) -> None:
        self.record = DocumentRecord(
            revision=revision,
            order_digest=digest,
            log_revision=stamp.log_revision,
            media_type=media_type,
            access=access,
            text_id=stamp.text_id,
            is_log=self.declaration.is_log,
        )
        ends = not data or data.endswith(b"\n")
        self._awaits_text_id = False
        self.text = LogText(data, True, count_lines(data), len(data), ends)
        self.fresh = True

    def _note_undecodable(self, ranges: tuple[ByteRange, ...], base: int) -> None:
        assert self.record is not None
        room = self._limits.max_recorded_ranges - len(self.record.undecodable)
        kept = tuple((base + r.start, base + r.end) for r in ranges[:room])
        self.record = replace(
            self.record,
            undecodable=self.record.undecodable + kept,
            undecodable_count=self.record.undecodable_count + len(ranges),
        )

    def _delete(self, change: Delete, stamp: Stamp) -> bool:
        held = self.record
        if change.outright:
            event_ordered = self.declaration.revision_from == "event"
            revision = held.revision if held is not None and event_ordered else stamp.log_revision
            if event_ordered and held is None:
                revision = NO_REVISION
        else:
            revision = self._revision(change, stamp)
            if held is not None and (held.revision, held.deleted) >= (revision, True):
                return False
        self.record = DocumentRecord(
            revision=revision,
            order_digest="",
            log_revision=stamp.log_revision,
            deleted=True,
            is_log=self.declaration.is_log,
        )
        self.text, self.fresh, self.damage = None, False, None
        return True

    def _append(self, change: Append, stamp: Stamp) -> bool:
        if self.damage is not None and self.text is None:
            raise EventError("held_state_damaged", str(self.damage))
        before = (self.record, self.text, self.fresh)
        if self.record is None or self.record.deleted:
            self._begin_log(change, stamp)
        else:
            self._check_same_log(self.record, change)
        assert self.record is not None
        assert self.text is not None
        size = self.text.size_bytes
        try:
            applied = self.text.append(
                change.first_line, change.content.encode(), self._limits.max_document_bytes
            )
        except EventError:
            self.record, self.text, self.fresh = before
            raise
        if self.text.rewritten:
            self.text.rewritten = False
            self.record = replace(self.record, revision=stamp.log_revision)
            self.fresh = self._awaits_text_id = True
        if applied and self._awaits_text_id:
            self._awaits_text_id = False
            self.record = replace(self.record, text_id=stamp.text_id)
        if applied:
            self._note_undecodable(change.undecodable, size)
        else:
            self.record, self.text, self.fresh = before
        return applied

    def _begin_log(self, change: Append, stamp: Stamp) -> None:
        if self.record is not None and change.first_line != 1:
            raise EventError(
                "append_after_delete",
                f"log {self.key!r} was deleted; an append at line {change.first_line} cannot begin it anew: "
                "append from line 1, or publish the whole log as an upsert",
                "first_line",
            )
        media_type = change.media_type or LOG_MEDIA_TYPES[self.declaration.kind]
        access = tuple(sorted(set(self.declaration.access if change.access is None else change.access)))
        self._begin(stamp.log_revision, "", stamp, media_type, access, b"")

    def _check_same_log(self, record: DocumentRecord, change: Append) -> None:
        if change.media_type is not None and change.media_type != record.media_type:
            raise EventError(
                "media_type_conflict",
                f"log {self.key!r} is held as {record.media_type}: leave media_type out of appends, "
                "or publish the whole log as an upsert",
                "media_type",
            )
        if change.access is not None and tuple(sorted(set(change.access))) != record.access:
            raise EventError(
                "access_conflict",
                f"an append cannot change who may read log {self.key!r}: publish the whole log as an upsert",
                "access",
            )


def needs_whole_text(held: DocumentRecord, changes: list[Change]) -> bool:
    """Whether an append among ``changes`` may reach back into lines that the held text already counts.

    Where another change stands among them, it may: that one can still be refused.
    """
    lines = held.lines
    for change in changes:
        if not isinstance(change, Append) or change.first_line <= lines:
            return True
        lines = change.first_line - 1 + count_lines(change.content.encode())
    return False
