from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path

import pytest

from tessera.errors import PolicyError
from tessera.ingestion import Chunk, chunk_text, parse_log_chunks
from tessera.policies import ChunkPolicy, TextPolicy, load_policy

PARAGRAPH = load_policy("paragraph")
STAMP = "2026-01-02T03:04:05.1234567Z"


def policy_file(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_identity_is_the_hash_of_the_canonical_json() -> None:
    rule = {
        "overlap": 0,
        "parent_context": "none@1",
        "parser": "paragraph@1",
        "size": None,
        "tokenizer": "words@1",
    }
    tables = {"documents": rule, "run_logs": rule, "ci_logs": {**rule, "parser": "runner@1"}}
    canonical = json.dumps(tables, sort_keys=True, separators=(",", ":"))
    assert PARAGRAPH.canonical_json == canonical
    assert PARAGRAPH.id == f"paragraph@{hashlib.sha256(canonical.encode()).hexdigest()[:12]}"


def test_identity_of_the_built_in_policy_stays() -> None:
    assert PARAGRAPH.id == "paragraph@2f49a2f47b07"


def test_name_and_spelled_out_defaults_change_no_hash(tmp_path: Path) -> None:
    text = """
        name = "mine"
        [documents]
        parser = "paragraph"
        overlap = 0
        parent_context = "none"
        tokenizer = "words@1"
        [ci_logs]
    """
    policy = load_policy(str(policy_file(tmp_path, text)))
    assert policy.id == PARAGRAPH.id.replace("paragraph@", "mine@")
    assert (
        load_policy(policy_file(tmp_path, 'name = "other"\n[ci_logs]\nparser = "paragraph"')).id[6:]
        != policy.id[5:]
    )


def test_policies_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PARAGRAPH.name = "x"
    with pytest.raises(AttributeError):
        PARAGRAPH.chunk("x", "d")[0].start = 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "name is missing"),
        ("name = 1", "name is 1; it must be 1 to 64 letters"),
        ('name = "a b"', "name is 'a b'; it must be 1 to 64 letters"),
        ('name = ""', "it must be 1 to 64 letters"),
        ('name = "x"\nsize = 3', "unknown key 'size'; allowed are name, documents, run_logs, ci_logs"),
        ('name = "x"\ndocuments = 3', "[documents] is 3; it must be a table"),
        (
            'name = "x"\n[documents]\nparsr = "a"',
            "[documents]: unknown key 'parsr'; allowed are parser, size,",
        ),
        (
            'name = "x"\n[run_logs]\nparser = "words"',
            "[run_logs]: parser is 'words'; allowed are paragraph, runner, window",
        ),
        ('name = "x"\n[ci_logs]\nparser = ["runner"]', "[ci_logs]: parser is ['runner']; allowed are"),
        ('name = "x"\n[documents]\nsize = 0', "[documents]: size is 0; it must be a whole number from 1 on"),
        ('name = "x"\n[documents]\nsize = true', "size is True; it must be a whole number"),
        ('name = "x"\n[documents]\nsize = 2.0', "size is 2.0; it must be a whole number"),
        ('name = "x"\n[documents]\nsize = 200', "parser 'paragraph' knows no size, leave it out"),
        ('name = "x"\n[documents]\noverlap = -1', "overlap is -1; it must be a whole number from 0 on"),
        ('name = "x"\n[documents]\noverlap = "1"', "overlap is '1'; it must be a whole number from 0 on"),
        ('name = "x"\n[documents]\noverlap = 2', "overlap is 2; it must be less than size"),
        ('name = "x"\n[documents]\nparser = "window"\noverlap = 2', "and 0 where size is left out"),
        (
            'name = "x"\n[documents]\nparser = "window"\nsize = 2\noverlap = 2',
            "[documents]: overlap is 2; it must be less than size",
        ),
        (
            'name = "x"\n[documents]\nparent_context = "sections"',
            "parent_context is 'sections'; allowed are none, headings, section",
        ),
        (
            'name = "x"\n[documents]\nparent_context = "section"',
            "[documents]: parent_context is 'section'; it goes with window and sentence and markdown, which",
        ),
        (
            'name = "x"\n[run_logs]\nparser = "window"\nparent_context = "section"',
            "parent_context of run_logs is 'section': a log goes on behind its sections",
        ),
        ('name = "x"\n[documents]\ntokenizer = "words"', "tokenizer is 'words'; allowed are words@1"),
        ("name = ", "cannot be read as TOML"),
    ],
)
def test_a_faulty_file_is_refused_by_file_table_and_key(tmp_path: Path, text: str, message: str) -> None:
    path = policy_file(tmp_path, text)
    with pytest.raises(PolicyError, match=re.escape(message)) as caught:
        load_policy(path)
    assert str(caught.value).startswith(str(path))


def test_an_unknown_name_is_refused_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(
        PolicyError,
        match=r"'window' is neither built in \(paragraph, window-200, sentence, markdown\) nor a file",
    ):
        load_policy("window")
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(tmp_path)


def test_a_policy_made_in_code_is_checked_as_well() -> None:
    with pytest.raises(PolicyError, match="parser is 'none'"):
        TextPolicy(parser="none")
    with pytest.raises(PolicyError, match="name is 'a/b'"):
        ChunkPolicy("a/b")


def test_media_types_choose_the_parser() -> None:
    log = f"{STAMP} a\n\n{STAMP} ##[error]b\n"
    for media_type in ("text/markdown", "text/plain", "text/x-run-log"):
        assert [chunk[:7] for chunk in PARAGRAPH.chunk(log, "d", media_type)] == [
            chunk[:7] for chunk in chunk_text(log, "d")
        ]
    assert [chunk[:7] for chunk in PARAGRAPH.chunk(log, "d", "text/x-ci-log")] == [
        chunk[:7] for chunk in parse_log_chunks(log, "d")
    ]
    with pytest.raises(PolicyError, match="text/html"):
        PARAGRAPH.chunk(log, "d", "text/html")


def test_only_documents_have_lines_that_end_at_cr() -> None:
    text = "a\r\rb c\r"
    assert PARAGRAPH.chunk(text, "d") == [
        Chunk("d:chunk0", "a", 0, 1, 1, 1, (), 0, 1),
        Chunk("d:chunk1", "b c", 3, 6, 3, 3, (), 1, 3),
    ]
    for media_type in ("text/x-run-log", "text/x-ci-log"):
        assert PARAGRAPH.chunk(text, "d", media_type) == [Chunk("d:chunk0", text, 0, 7, 1, 1, (), 0, 3)]


def test_token_offsets_index_the_tokens_of_the_whole_text() -> None:
    text = "# One two\n\nnaïve don't\n\n---\n\nlast_1 x\n"
    chunks = PARAGRAPH.chunk(text, "d")
    tokens = re.findall(r"\w+", text)
    assert [tokens[chunk.start_token : chunk.end_token] for chunk in chunks] == [
        re.findall(r"\w+", chunk.text) for chunk in chunks
    ]
    assert [(chunk.start_token, chunk.end_token) for chunk in chunks] == [(0, 5), (5, 5), (5, 7)]


def test_chunks_of_the_plain_functions_have_no_token_offsets() -> None:
    assert chunk_text("x", "d")[0].start_token is None
    assert parse_log_chunks("x", "d")[0].end_token is None


def test_a_document_cut_as_runner_log_keeps_its_own_line_rule(tmp_path: Path) -> None:
    policy = load_policy(policy_file(tmp_path, 'name = "x"\n[documents]\nparser = "runner"'))
    text = f"{STAMP} a\r{STAMP} ##[error]b\r"
    assert [(chunk.start_line, chunk.text) for chunk in policy.chunk(text, "d")] == [
        (1, f"{STAMP} a"),
        (2, f"{STAMP} ##[error]b"),
    ]
