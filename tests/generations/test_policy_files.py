"""What context and tokenizer of a policy are to a generation: found by it, and written where it can be."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import dual_index
import pytest
from dual_index import DOCUMENTS, DualIndex
from installation import Installation
from tokenizers import Tokenizer, models, pre_tokenizers

from tessera.cli import lifecycle
from tessera.cli import main as entry
from tessera.generations.bootstrap import contract_of
from tessera.policies import TOKENIZERS, ChunkPolicy, TextPolicy
from tessera.search import Searcher
from tessera.settings import Settings
from tessera.shards import caretaker
from tessera.store.base import ShardStore

RENT = "# Rent\n\nDue monthly, in euro.\n\n## Flats\n\nFirst week of it.\n\n## Shops\n\nLast week.\n"


def test_a_chunk_is_found_by_its_sections_text_and_shown_without_it() -> None:
    async def scenario() -> None:
        index = await DualIndex().open()
        await index.add_candidate(ChunkPolicy("s", TextPolicy("sentence", 12, 0, "section")))
        await index.put("rent.md", RENT)
        searcher = Searcher(index.store)
        try:
            found = await searcher.search("monthly shops", k=5, principals=None, generation="g2")
            hit = found.hits[0]
            assert (hit.text, RENT[hit.start : hit.end]) == ("## Shops\n\nLast week.",) * 2
            assert hit.headings == ("Rent", "Shops")
            alone = await searcher.search("monthly", k=5, principals=None, generation="g1")
            assert [hit.text for hit in alone.hits] == ["# Rent\n\nDue monthly, in euro."]
        finally:
            await searcher.close()

    asyncio.run(scenario())


def word_level(folder: Path) -> Path:
    """A small tokenizer's file."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    path = folder / "own.json"
    path.write_text(tokenizer.to_str())
    return path


def test_creating_a_generation_puts_the_tokenizer_where_its_digest_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TOKENIZERS, "folder", tmp_path)
    monkeypatch.setattr(TOKENIZERS, "_read", {})
    monkeypatch.setenv("TESSERA_TOKENIZERS_DIR", str(tmp_path / "kept"))
    data = word_level(tmp_path).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    (tmp_path / "p.toml").write_text('name = "t"\n[documents]\ntokenizer = "own.json"\n')
    here = asyncio.run(Installation().open())

    @asynccontextmanager
    async def opened(settings: Settings) -> AsyncIterator[ShardStore]:
        yield here.store

    monkeypatch.setattr(lifecycle, "opened_store", opened)
    monkeypatch.setattr(lifecycle, "Operator", lambda store, settings, actor: here.operator(actor))
    servers = ["--broker", "127.0.0.1:1", "--redis", "redis://127.0.0.1:1/0"]
    assert entry.run(["generation", "create", "--policy", "p.toml", "--json", *servers]) == 0
    contract = json.loads(capsys.readouterr().out)["contract"]
    assert contract["policy"]["canonical"]["documents"]["tokenizer"] == f"tokenizers@sha256:{digest}"
    assert (tmp_path / "kept" / f"{digest}.json").read_bytes() == data

    (tmp_path / "kept" / f"{digest}.json").unlink()
    TOKENIZERS._read.clear()
    TOKENIZERS._data.clear()
    (tmp_path / "q.toml").write_text(f'name = "q"\n[documents]\ntokenizer = "tokenizers@sha256:{digest}"\n')
    assert entry.run(["generation", "create", "--policy", "q.toml", *servers]) == 2
    assert f"put its file at {tmp_path}/kept/{digest}.json" in capsys.readouterr().err


def test_a_shard_adopts_no_generation_whose_tokenizer_it_lacks_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(TOKENIZERS, "folder", tmp_path)
    monkeypatch.setattr(TOKENIZERS, "_read", {})
    identity = TOKENIZERS.add(word_level(tmp_path))
    TOKENIZERS.keep([identity])
    kept = tmp_path / f"{identity[-64:]}.json"
    policy = ChunkPolicy("t", TextPolicy("window", 3, tokenizer=identity))

    contract = contract_of(policy)
    monkeypatch.setattr(dual_index, "contract_of", lambda policy: contract)
    TOKENIZERS._read.clear()
    kept.rename(tmp_path / "away.json")

    async def scenario() -> None:
        index = await DualIndex().open()
        await index.put("a.md", "one two, three four")
        with caplog.at_level(logging.ERROR):
            await index.add_candidate(policy)
        assert f"tessera.documents/0 does not adopt g2: {identity} cannot be read" in caplog.text
        assert f"put its file at {kept}" in caplog.text
        await index.put("b.md", "five six")
        assert index.writers[DOCUMENTS].head.live == ("g1",)
        assert (await index.store.counters(DOCUMENTS))["documents:handbook"] == 2

        (tmp_path / "away.json").rename(kept)
        writer = index.writers[DOCUMENTS]
        await writer.tick()
        assert writer.head.live == ("g1",), "it is not looked for at every round"
        monkeypatch.setattr(caretaker, "RETRY_S", 0.0)
        await writer.tick()
        while await writer.backfill(0, 5.0):
            pass
        assert set(writer.head.live) == {"g1", "g2"}
        assert (await index.store.counters(DOCUMENTS))["chunks:g2:handbook"] == 3

    asyncio.run(scenario())
