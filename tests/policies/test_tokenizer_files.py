from __future__ import annotations

import builtins
import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizer_samples import LINES, SAMPLES, sample, sample_file
from tokenizers import Tokenizer

from tessera.errors import PolicyError
from tessera.generations.bootstrap import contract_of
from tessera.ingestion import Chunk, Resume, lf_lines, uncovered_ranges
from tessera.policies import TOKENIZERS, ChunkPolicy, TextPolicy, load_policy, parse_policy, tokenizer_files
from tessera.policies.policy import SIZED
from tessera.policies.stored import policy_from_canonical

BLANK = " \t\r\n\ufeff"
PIECES = [
    *(
        "One two three. ",
        "naïve café ",
        "e\u0301te\u0301",
        "🙂",
        "👩\u200d👩\u200d👧",
        "🇪🇺",
        "終わり。",
        "привет ",
    ),
    *(
        "\n",
        "\n",
        "\n\n",
        "# A b\n\n",
        "## C\n\n",
        "- item\n",
        "  indented\n",
        "\t",
        " ",
        "\r\n",
        "...",
        "[SEP]",
    ),
    *(
        "\ufeff",
        "\u00a0",
        "\x00",
        "\ud800",
        "ﬁ",
        "Å",
        "a\u0323\u0301",
        "| a | b |\n",
        "\u2028",
        "##",
        "#",
        "привет ",
    ),
]
TEXTS = st.lists(st.sampled_from([*PIECES, *LINES]), max_size=25).map("".join) | st.text(max_size=30)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own: no tokenizer read, none in its folder."""
    monkeypatch.setattr(TOKENIZERS, "folder", tmp_path / "tokenizers")
    monkeypatch.setattr(TOKENIZERS, "_read", {})
    monkeypatch.setattr(TOKENIZERS, "_data", {})


def rule_of(kind: str, folder: Path, *rule: Any) -> TextPolicy:
    return TextPolicy(*rule, tokenizer=TOKENIZERS.add(sample_file(folder, kind)))


KEEPING_FOLDER = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def slow_starts(kind: str, text: str) -> list[int]:
    """Where the library says that tokens of each line are, by characters and one after another."""
    tokenizer = Tokenizer.from_str(sample(kind))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    starts: list[int] = []
    at = 0
    for line in text.split("\n"):
        readable = re.sub("[\ud800-\udfff]", "\ufffd", line)
        for start, end in tokenizer.encode(readable, add_special_tokens=False).offsets:
            held = line[start:end]
            first = at + start + len(held) - len(held.lstrip(BLANK))
            if held.strip(BLANK) and first not in starts and first > max(starts, default=-1):
                starts.append(first)
        at += len(line) + 1
    return starts


@pytest.mark.parametrize("kind", SAMPLES)
@KEEPING_FOLDER
@given(text=TEXTS)
@example(text="🙂🙂 🙂")
@example(text="e\u0301\u0301 ﬁ\n終わり。")
def test_tokens_start_where_the_library_has_them_on_characters_that_show(
    kind: str, text: str, tmp_path: Path
) -> None:
    starts = rule_of(kind, tmp_path).starts_of(text).tolist()
    assert starts == slow_starts(kind, text)
    assert all(before < after for before, after in pairwise(starts))
    assert all(text[start] not in BLANK for start in starts)


def test_what_a_model_puts_around_a_text_and_where_it_cuts_it_off_does_not_count(tmp_path: Path) -> None:
    text = "fox dog " * 40
    assert len(rule_of("word_piece", tmp_path).starts_of(text)) >= 80
    assert len(rule_of("word_piece", tmp_path).starts_of("")) == 0


def test_long_lines_and_long_texts_are_tokenized_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts_of = rule_of("word_piece", tmp_path).starts_of
    text = "the lazy dog jumps " * 10 + "x" * 50 + "\nover again\n" * 30
    whole = starts_of(text).tolist()
    monkeypatch.setattr(tokenizer_files, "BATCH_SIZE", 20)
    assert starts_of(text).tolist() == whole
    monkeypatch.setattr(tokenizer_files, "LONGEST_LINE", 40)
    inside = text.index("x" * 50)
    assert [start for start in starts_of(text) if start < inside] == [
        start for start in whole if start < inside
    ]
    assert starts_of(text).tolist()[-1] == whole[-1]


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("parser", SIZED)
@KEEPING_FOLDER
@given(text=TEXTS, size=st.integers(1, 14), context=st.sampled_from(["none", "headings", "section"]))
@example(text="\ufeff\nOne two three. ", size=1, context="none")
def test_chunks_are_sliced_from_the_source_within_the_size_and_leave_nothing_out(
    kind: str, parser: str, text: str, size: int, context: str, tmp_path: Path
) -> None:
    rule = rule_of(kind, tmp_path, parser, size, 0, context)
    chunks = ChunkPolicy("p", rule).chunk(text, "d")
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end] != ""
        assert chunk.start_token is not None
        assert chunk.end_token is not None
        own = chunk.end_token - chunk.start_token
        assert own + len(rule.starts_of(chunk.context)) <= size
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
    assert uncovered_ranges(lf_lines(text), chunks) == []


@pytest.mark.parametrize("kind", SAMPLES)
@KEEPING_FOLDER
@given(
    text=TEXTS,
    rule=st.sampled_from(
        [("window", 5, 2), ("window", 3, 0, "headings"), ("sentence", 4, 2), ("sentence", 4), ("paragraph",)]
    ),
    cuts=st.lists(st.integers(0, 40), max_size=6),
)
@example(text="\n".join(LINES) + "\n", rule=("window", 5, 2), cuts=[1, 2, 3])
@example(text="to the tune of the tale\n" * 4, rule=("window", 5, 2), cuts=[1, 2, 3])
@example(text="to the tune of the tale that they told then there\n" * 3, rule=("sentence", 4), cuts=[1, 2])
@example(text="# 🙂 # 🙂 ## 🙂 #\n\n🙂🙂🙂 🙂\n", rule=("window", 3, 0, "headings"), cuts=[1, 2, 3])
def test_a_log_that_grows_has_the_chunks_of_the_whole(
    kind: str, text: str, rule: tuple[Any, ...], cuts: list[int], tmp_path: Path
) -> None:
    cut_by = rule_of(kind, tmp_path, *rule)
    policy = ChunkPolicy("p", run_logs=cut_by)
    lines = [line + "\n" for line in text.split("\n")]
    chunks: list[Chunk] = []
    resume, held = Resume.begin(), ""
    for first, last in pairwise([0, *sorted(min(cut, len(lines)) for cut in cuts), len(lines)]):
        held += "".join(lines[first:last])
        cut = policy.cut(held, "d", "text/x-run-log", resume)
        chunks[resume.ordinal :] = cut.chunks
        held = held[cut.open.start - resume.start :]
        resume = Resume.from_json(json.loads(json.dumps(cut.open.to_json())))
    assert chunks == policy.chunk("".join(lines), "d", "text/x-run-log")


def test_a_policy_file_names_the_file_and_its_identity_holds_the_digest(tmp_path: Path) -> None:
    path = sample_file(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    written = tmp_path / "policy.toml"
    written.write_text('name = "t"\n[documents]\nparser = "window"\nsize = 9\ntokenizer = "tokenizer.json"\n')
    policy = load_policy(written)
    assert policy.documents.tokenizer == f"tokenizers@sha256:{digest}"
    assert f'"tokenizer":"tokenizers@sha256:{digest}"' in policy.canonical_json
    assert "tokenizer.json" not in policy.canonical_json
    named = written.read_text().replace("tokenizer.json", policy.documents.tokenizer)
    assert parse_policy(named, "body") == policy
    path.write_text(sample("word_piece"))
    assert load_policy(written).id != policy.id


def test_a_contract_needs_the_file_where_workers_look_for_it(tmp_path: Path) -> None:
    rule = rule_of("byte_level", tmp_path, "window", 9)
    policy = ChunkPolicy("p", rule)
    TOKENIZERS.keep(policy.tokenizer_files)
    TOKENIZERS.keep(policy.tokenizer_files)
    kept = TOKENIZERS.folder / f"{rule.tokenizer[-64:]}.json"
    assert [*TOKENIZERS.folder.iterdir()] == [kept]
    TOKENIZERS._read.clear()
    contract = contract_of(policy)
    assert policy_from_canonical(contract.policy_id, contract.policy_canonical) == policy
    assert str(tmp_path) not in json.dumps(contract.policy_canonical)

    kept.rename(tmp_path / "elsewhere.json")
    TOKENIZERS._read.clear()
    for use in (
        lambda: contract_of(policy),
        lambda: policy_from_canonical(contract.policy_id, contract.policy_canonical),
        lambda: policy.chunk("x", "d"),
    ):
        with pytest.raises(PolicyError, match=re.escape(f"put its file at {kept}")):
            use()


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    rule = rule_of("byte_level", tmp_path, "window", 9)
    TOKENIZERS.keep([rule.tokenizer])
    (kept,) = TOKENIZERS.folder.iterdir()
    kept.write_text(sample("unigram"))
    TOKENIZERS._read.clear()
    digest = hashlib.sha256(sample("unigram").encode()).hexdigest()
    with pytest.raises(PolicyError, match=f"{kept} has the digest {digest}, not that of its name"):
        ChunkPolicy("p", rule).require_tokenizers()


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ("missing.json", "missing.json cannot be read (No such file or directory): check the path"),
        ("policy.json", "is no file of the library tokenizers"),
        ("words@2", "tokenizer is 'words@2'; allowed are words@1, tokenizers@sha256:<64 hex digits> and"),
        ("tokenizers@sha256:abc", "allowed are words@1, tokenizers@sha256:<64 hex digits> and"),
    ],
)
def test_a_policy_file_with_a_faulty_tokenizer_is_refused(
    tokenizer: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "policy.json").write_text('{"model": 1}')
    written = tmp_path / "policy.toml"
    written.write_text(f'name = "t"\n[documents]\ntokenizer = "{tokenizer}"\n')
    with pytest.raises(PolicyError, match=re.escape(message)) as caught:
        load_policy(written)
    assert str(caught.value).startswith(f"{written}: [documents]: tokenizer")


def test_a_text_that_came_from_elsewhere_names_no_path_of_this_machine() -> None:
    with pytest.raises(PolicyError, match="no file of yours can be read here: put it into tokenizers_dir"):
        parse_policy('name = "t"\n[documents]\ntokenizer = "/etc/passwd.json"\n', "body")


def test_without_the_library_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sample_file(tmp_path)
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "tokenizers":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PolicyError, match=re.escape("pip install 'tessera-indexer[tokenizers]'")):
        TOKENIZERS.add(path)
    assert load_policy("paragraph").chunk("x", "d")
