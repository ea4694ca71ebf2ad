from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from dual_index import DOCUMENTS, LOGS, SHARDS, WINDOWS, DualIndex, small_index

from tessera.documents.text import compress
from tessera.errors import CorruptionError, RefusedError
from tessera.generations import verify as verification
from tessera.generations.inventory import read_inventory
from tessera.generations.report import GenerationCounts, VerifyReport
from tessera.generations.verify import verify
from tessera.index.codec import decode, encode
from tessera.policies import load_policy
from tessera.store.base import ShardId, segment_blob


async def verified(index: DualIndex, **options: Any) -> VerifyReport:
    return await verify(index.store, SHARDS, "g2", "g1", **options)


def report_after(damage: Callable[[DualIndex], None], **options: Any) -> VerifyReport:
    async def run() -> VerifyReport:
        index = await small_index()
        damage(index)
        return await verified(index, **options)

    return asyncio.run(run())


def test_two_generations_written_side_by_side_pass() -> None:
    steps: list[tuple[int, int]] = []
    report = report_after(lambda _: None, on_progress=lambda *step: steps.append(step))
    assert report.passed, report.reasons
    assert (report.sampled, report.moved, report.reasons) == (15, 0, ())
    assert [(parity.shard, parity.documents) for parity in report.shards] == [
        ("tessera.documents/0", 13),
        ("tessera.logs/0", 2),
    ]
    assert json.loads(json.dumps(report.to_value()))["passed"] is True
    assert steps == sorted(steps)
    assert steps[-1] == (52, 52)


def test_sources_stand_side_by_side() -> None:
    report = report_after(lambda _: None)
    handbook, devex = report.sources["handbook"], report.sources["devex"]
    texts = [
        f"# Title {n}\n\nfirst naïve words of {n}\n\nand then seven more words follow\n" for n in range(12)
    ]
    texts[3] = "a shorter text\n"
    paragraph = load_policy("paragraph")
    assert handbook.baseline == GenerationCounts(sum(len(paragraph.chunk(t, "d")) for t in texts), 0)
    assert handbook.candidate == GenerationCounts(sum(len(WINDOWS.chunk(t, "d")) for t in texts), 0)
    assert (handbook.documents, handbook.parse_failures) == (13, 0)
    assert devex.documents == 2
    assert devex.baseline.uncovered == devex.candidate.uncovered == 1
    assert handbook.split == 22
    assert handbook.joined == 0


def test_differences_name_the_split_chunks_of_the_sample() -> None:
    report = report_after(lambda _: None)
    by_document = {difference.doc_id: difference for difference in report.differences}
    assert by_document["a/0.md"].split == (0, 1)
    assert "a/3.md" not in by_document


def test_a_sample_is_that_of_its_seed() -> None:
    async def run() -> None:
        index = await small_index()
        samples = {}
        for seed in (1, 2, 1):
            seen: list[str] = []
            survey = verification._Survey(index.store, await generations(index), 5, seed)
            for shard in random.sample(SHARDS, len(SHARDS)):
                await survey.shard(shard)
            seen = [document.key for document in survey.chosen()]
            assert samples.setdefault(seed, seen) == seen
            assert len(seen) == 5
        assert samples[1] != samples[2]

    asyncio.run(run())


async def generations(index: DualIndex) -> Any:
    return await verification.load_generations(index.store, ["g2", "g1"])


def state(index: DualIndex, shard: ShardId = DOCUMENTS) -> Any:
    return index.store._shards[shard]


def drop_a_segment(index: DualIndex) -> None:
    segments = state(index).generations["g2"].segments
    del segments[sorted(segments)[0]]


def forget_tombstones(index: DualIndex) -> None:
    held = state(index).generations["g2"]
    held.tombstone_base = held.next_tombstone
    held.tombstones.clear()


def shift_spans(index: DualIndex) -> None:
    change_segments(index, lambda columns: columns.__setitem__((slice(None), 3), columns[:, 3] - 1))


def miscount_terms(index: DualIndex) -> None:
    change_segments(index, lambda columns: columns.__setitem__((slice(None), 11), columns[:, 11] + 1))


def change_segments(index: DualIndex, change: Callable[[Any], None]) -> None:
    held = state(index)
    for name in held.generations["g2"].segments:
        blob = held.blobs[segment_blob("g2", name)]
        segment = decode(blob.content)
        columns = segment.columns.copy()
        change(columns)
        blob.content = encode(replace(segment, columns=columns))


def open_to_all(index: DualIndex) -> None:
    held = state(index)
    for name in held.generations["g2"].segments:
        blob = held.blobs[segment_blob("g2", name)]
        segment = decode(blob.content)
        entries = tuple(entry._replace(access=("everyone",)) for entry in segment.documents)
        blob.content = encode(replace(segment, documents=entries))


def short_text(index: DualIndex) -> str:
    """The blob with the text of ``a/3.md``, by its length."""
    blobs = state(index).blobs
    return next(name for name in blobs if name.startswith("text/") and name.endswith("/15"))


def change_a_text(index: DualIndex) -> None:
    state(index).blobs[short_text(index)].content = compress(b"a longer text.\n")


def lose_a_text(index: DualIndex) -> None:
    del state(index).blobs[short_text(index)]


def damage_a_segment(index: DualIndex) -> None:
    held = state(index)
    name = next(iter(held.generations["g2"].segments))
    held.blobs[segment_blob("g2", name)].content = b"nothing"


def lose_a_segment(index: DualIndex) -> None:
    held = state(index)
    del held.blobs[segment_blob("g2", next(iter(held.generations["g2"].segments)))]


def change_both_fingerprints(index: DualIndex) -> None:
    head = state(index).head
    standings = {name: replace(each, fingerprint="1" * 32) for name, each in head.standings.items()}
    state(index).head = replace(head, standings=standings)


def changed_standing(**changes: Any) -> Callable[[DualIndex], None]:
    def damage(index: DualIndex) -> None:
        head = state(index).head
        standings = {**head.standings, "g2": replace(head.standings["g2"], **changes)}
        state(index).head = replace(head, standings=standings)

    return damage


def never_claimed(index: DualIndex) -> None:
    state(index, LOGS).head = None


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (drop_a_segment, "has chunks numbered"),
        (forget_tombstones, "'handbook/gone.md', which is not held"),
        (shift_spans, "the policy cuts"),
        (miscount_terms, "it was analyzed to"),
        (open_to_all, "access ('everyone',)"),
        (change_a_text, "its text has digest sha256:"),
        (lose_a_text, "blocks of the text of 'handbook/a/3.md' are gone"),
        (damage_a_segment, "segment"),
        (lose_a_segment, "segments of generation g2 are gone"),
        (change_both_fingerprints, "its documents give"),
        (changed_standing(fingerprint="1" * 32), "fingerprint are 1111"),
        (changed_standing(documents=1), "documents are 1 in g2 and 13 in g1"),
        (changed_standing(complete=False), "g2 is not complete yet (the backfill is under way)"),
        (changed_standing(complete=False, note="paused"), "g2 is not complete yet (paused)"),
        (never_claimed, "shard tessera.logs/0: no worker has claimed it"),
    ],
)
def test_what_is_wrong_is_found_and_told(damage: Callable[[DualIndex], None], reason: str) -> None:
    report = report_after(damage)
    assert not report.passed
    assert any(reason in told for told in report.reasons), report.reasons


def test_faults_without_number_are_counted_and_not_all_told() -> None:
    report = report_after(shift_spans)
    assert len(report.reasons) == verification.FAULTS_SHOWN + 1
    assert report.reasons[-1] == "2 more documents are not as their policy cuts them"


def test_a_generation_that_is_not_adopted_yet_fails() -> None:
    async def run() -> None:
        index = await DualIndex().open()
        await index.put("a.md", "text\n")
        for writer in index.writers.values():
            writer._caretaker.follow_registry = _nothing  # type: ignore[method-assign]
        await index.add_candidate(backfill=False)
        report = await verified(index)
        assert [fault for parity in report.shards for fault in parity.faults] == [
            "shard tessera.documents/0: g2 is not adopted yet; wait for its worker",
            "shard tessera.logs/0: g2 is not adopted yet; wait for its worker",
        ]

    asyncio.run(run())


async def _nothing() -> None:
    pass


def test_documents_written_to_meanwhile_are_passed_over_and_counted() -> None:
    async def run() -> None:
        index = await small_index()
        real, reads = index.store.manifest, 0

        async def busy(*args: Any) -> Any:
            nonlocal reads
            reads += 1
            found = await real(*args)
            await index.put("a/1.md", f"written again {reads}\n")
            await index.put(f"new{reads}.md", "written meanwhile\n")
            return found

        index.store.manifest = busy  # type: ignore[method-assign]
        report = await verified(index)
        assert report.passed, report.reasons
        assert reads == 4
        assert report.moved == 3
        assert report.sampled == 14

    asyncio.run(run())


def test_a_sampled_text_that_is_deleted_meanwhile_is_no_fault() -> None:
    async def run() -> None:
        index = await small_index()
        survey = verification._Survey(index.store, await generations(index), 50, 0)
        for shard in SHARDS:
            await survey.shard(shard)
        await index.delete("a/1.md")
        for document in survey.chosen():
            await survey.body(document)
        report = survey.report()
        assert report.passed, report.reasons
        assert (report.moved, report.sampled) == (1, 14)

    asyncio.run(run())


def test_a_generation_is_not_verified_against_itself_nor_one_that_is_not_there() -> None:
    async def run() -> None:
        index = await DualIndex().open()
        with pytest.raises(RefusedError, match="against itself"):
            await verify(index.store, SHARDS, "g1", "g1")
        with pytest.raises(CorruptionError, match="g9"):
            await verify(index.store, SHARDS, "g9", "g1")

    asyncio.run(run())


def test_an_inventory_of_a_generation_that_is_not_held_is_empty() -> None:
    async def run() -> None:
        index = await DualIndex().open()
        assert await read_inventory(index.store, DOCUMENTS, "g2") == {}

    asyncio.run(run())
