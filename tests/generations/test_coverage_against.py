"""Coverage of one generation against another: every policy covers all content, so only damage differs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from dual_index import DOCUMENTS, small_index

from tessera.coverage import read_coverage
from tessera.documents.record import DocumentRecord
from tessera.search import Searcher
from tessera.store.base import Commit, GenerationDelta, Tombstone


def test_generations_that_cover_alike_differ_in_nothing() -> None:
    async def scenario() -> None:
        index = await small_index()
        searcher = Searcher(index.store)
        found = await read_coverage(index.store, searcher, "g1", against="g2")
        await searcher.close()
        [document] = found.documents
        assert (document.doc_id, [each.missing for each in document.uncovered]) == ("run_2.log", [True])
        assert (document.only_here, document.only_there) == ((), ())

    asyncio.run(scenario())


def test_ranges_that_only_one_generation_covers_are_told_with_their_lines() -> None:
    async def scenario() -> None:
        index = await small_index()
        writer, key = index.writers[DOCUMENTS], "handbook/a/1.md"
        [data] = await index.store.documents(DOCUMENTS, [key])
        assert data is not None
        record = DocumentRecord.decode(data, key)
        record = replace(record, indexed={**record.indexed, "g2": replace(record.indexed["g2"], uncovered=1)})
        manifest = await index.store.manifest(DOCUMENTS, "g2")
        assert manifest is not None
        lose = GenerationDelta(manifest.next_tombstone, tombstones=(Tombstone(key, 1),))
        head = writer.head
        await index.store.commit(
            Commit(
                DOCUMENTS,
                head.fence,
                head.seq,
                documents={key: record.encode()},
                generations={"g2": lose},
            )
        )
        searcher = Searcher(index.store)
        found = await read_coverage(index.store, searcher, "g1", against="g2", source="handbook")
        other = await read_coverage(index.store, searcher, "g2", source="handbook")
        await searcher.close()
        [document], [damaged] = found.documents, other.documents
        assert (document.doc_id, document.uncovered, document.only_there) == ("a/1.md", (), ())
        [lost] = document.only_here
        assert lost.lines[-1] == "and then seven more words follow"
        assert damaged.uncovered == (lost,)

    asyncio.run(scenario())
