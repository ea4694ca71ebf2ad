"""Why a change event is not applied: the stable words that dead letters and metrics are counted by."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

REASONS: Mapping[str, str] = MappingProxyType(
    {
        # The record around the event.
        "damaged_batch": "the batch that held the record is damaged in the log, so nothing of it is known",
        "missing_key": "the record has no key, so no partition and no document is known",
        "invalid_key": "the key is not UTF-8 text of the form <source>/<doc_id>",
        "key_mismatch": "the key names another document than the event does",
        "wrong_partition": "the key does not belong to the partition the record is in",
        "invalid_part": "a piece of a large event whose header or payload is not well formed",
        # The event itself.
        "invalid_json": "the value is not one JSON value in UTF-8",
        "not_an_object": "the JSON value is not an object",
        "unsupported_version": "`v` is not a version this build reads",
        "unknown_op": "`op` is not upsert, delete or append",
        "missing_field": "a field this operation needs is not there",
        "unknown_field": "a field this operation does not have",
        "wrong_type": "a field holds another JSON type than it must",
        "out_of_range": "an integer outside its bounds",
        "invalid_source": "the source's name is empty, too long, or holds `/` or control characters",
        "invalid_doc_id": "the document's id is empty, too long, a path with `.` or `..`, or holds controls",
        "invalid_media_type": "a media type that is not known, or that the operation cannot have",
        "invalid_access": "the access list is too long, or holds an empty or overlong principal",
        "invalid_time": "`occurred_at` is not an RFC 3339 time",
        "invalid_base64": "`content_base64` is not base64 with padding",
        "not_encodable": "a value that JSON in UTF-8 cannot express (a lone surrogate, an integer too great)",
        "content_twice": "both `content` and `content_base64` are given",
        "undecodable_content": "the event's own bytes are gone and cannot be sent again as they were",
        "too_large": "the content is larger than the configured maximum",
        # The event against what is declared about its source.
        "wrong_topic": "the source's kind travels on the other change topic",
        "append_to_documents": "an append to a source whose documents do not grow",
        "revision_missing": "the source is declared to bring its own revisions and this event has none",
        # The event against the document that is held.
        "append_after_delete": "an append in the middle of a log that was deleted",
        "append_conflict": "an append of lines that are held with other content",
        "gap_too_large": "an append so far on that the gap before it would pass the maximum size",
        "document_too_large": "the document would be larger than the configured maximum",
        "media_type_conflict": "an append of another media type than the log is held as",
        "access_conflict": "an append that would change who may read the log",
        "held_state_damaged": "what is held of the document cannot be read back",
        "too_many_gaps": "the log has as many gaps as it may have, and the append would add one",
        "invalid_replay": "a replayed dead letter whose header does not say what it replays",
        "replay_superseded": "a replayed dead letter of a document that has changed since",
        "processing_failed": "the record alone makes chunking or analyzing fail, again and again",
    }
)
"""Every reason, with its meaning."""
