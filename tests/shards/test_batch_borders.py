"""The same records leave the same shard, wherever batches end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from shard_reading import read_chunks, read_records, read_text
from test_writer import (
    DOCUMENTS,
    LOGS,
    Log,
    append,
    delete,
    reasons,
    replay_header,
    run_records,
    texts,
    upsert,
)

from tessera.events.parts import split_record
from tessera.limits import Limits

SMALL = Limits(max_document_bytes=400, max_open_groups=2)
NAMES = st.sampled_from(["a", "b"])
LINES = st.lists(st.sampled_from(["", "x", "# h", "é", "y" * 60]), max_size=5)


@st.composite
def document_records(draw):
    log = Log(DOCUMENTS)
    for _ in range(draw(st.integers(1, 14))):
        name = draw(NAMES)
        kind = draw(
            st.sampled_from(["upsert", "upsert", "delete", "null", "parts", "access", "bad", "replay"])
        )
        if kind == "null":
            log.add(None, f"handbook/{name}")
        elif kind == "bad":
            log.add(b"{", f"handbook/{name}")
        elif kind == "delete":
            log.add(delete(name, draw(st.integers(0, 5))))
        else:
            access = {"access": draw(st.sampled_from([["*"], ["p"]]))} if kind == "access" else {}
            event = upsert(name, draw(st.integers(0, 5)), draw(texts), **access)
            if kind == "parts":
                pieces = split_record(json.dumps(event).encode(), draw(st.sampled_from([60, 90])))
                for headers, payload in pieces[: draw(st.integers(1, len(pieces)))]:
                    log.add(payload, f"handbook/{name}", headers)
            else:
                log.add(event, headers=replay_header(draw(st.integers(0, 9))) if kind == "replay" else ())
    return log.records


@st.composite
def log_records(draw):
    log, lines = Log(LOGS), {"a": 0, "b": 0}
    for _ in range(draw(st.integers(1, 14))):
        name = draw(NAMES)
        kind = draw(
            st.sampled_from(["next", "next", "next", "again", "gap", "delete", "upsert", "null", "old"])
        )
        content = "".join(f"{line}\n" for line in draw(LINES))
        first = {"gap": lines[name] + 1 + draw(st.integers(1, 3)), "again": draw(st.integers(1, 4))}
        if kind == "null":
            log.add(None, f"devex/{name}")
        elif kind in ("delete", "old"):
            event = {"v": 1, "op": "delete", "source": "devex", "doc_id": name}
            log.add(event, headers=replay_header(0) if kind == "old" else ())
        elif kind == "upsert":
            event = {
                "v": 1,
                "op": "upsert",
                "source": "devex",
                "doc_id": name,
                "media_type": "text/x-run-log",
            }
            log.add({**event, "content": content})
            lines[name] = content.count("\n")
        else:
            start = first.get(kind, lines[name] + 1)
            log.add(append(name, start, content))
            lines[name] = max(lines[name], start - 1 + content.count("\n"))
    return log.records


async def everything(store, shard):
    stored = await read_records(store, shard)
    records = {key: replace(record, changed_at_ms=0) for key, record in stored.items()}
    live = {key: record for key, record in records.items() if not record.deleted}
    texts_held = {key: await read_text(store, shard, record) for key, record in live.items()}
    chunks = await read_chunks(store, shard)
    for of_key in chunks.values():
        for chunk in of_key:
            del chunk["document"], chunk["heading"]
    counted = await store.counters(shard)
    counters = {name: count for name, count in counted.items() if count and name != "merges"}
    parts = await store.parts(shard, ["handbook/a", "handbook/b"])
    head = await store.head(shard)
    return records, texts_held, chunks, counters, parts, head.standings


def check_all_borders(shard, records, cuts):
    whole = run_records(shard, records, limits=SMALL)
    expected = asyncio.run(everything(whole, shard)), sorted(reasons(whole))
    for borders in (range(len(records)), cuts):
        store = run_records(shard, records, borders, limits=SMALL)
        assert (asyncio.run(everything(store, shard)), sorted(reasons(store))) == expected


@given(records=document_records(), cuts=st.lists(st.integers(0, 14)))
@settings(max_examples=120, deadline=None)
def test_documents_do_not_depend_on_where_batches_end(records, cuts):
    check_all_borders(DOCUMENTS, records, cuts)


@given(records=log_records(), cuts=st.lists(st.integers(0, 14)))
@settings(max_examples=120, deadline=None)
def test_logs_do_not_depend_on_where_batches_end(records, cuts):
    check_all_borders(LOGS, records, cuts)
