from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.documents.identity import ChunkUid, chunk_id, chunk_uid, document_stem, parse_uid
from tessera.errors import QueryError

uids = st.builds(
    ChunkUid,
    st.text(min_size=1),
    st.text(min_size=1),
    st.integers(0, 2**63 - 1),
    st.text(min_size=1),
    st.integers(0, 2**32 - 1),
)


@given(uids)
def test_a_uid_gives_its_parts_back(uid: ChunkUid) -> None:
    assert parse_uid(chunk_uid(*uid)) == uid


@given(uids, uids)
def test_no_two_chunks_share_a_uid(first: ChunkUid, second: ChunkUid) -> None:
    assert (chunk_uid(*first) == chunk_uid(*second)) == (first == second)


def test_each_part_is_percent_encoded() -> None:
    assert chunk_uid("hand book", "a/b@2.md", 7, "win@0a", 3) == "hand%20book/a%2Fb%402.md@7/win%400a/3"


@pytest.mark.parametrize(
    "uid",
    [
        "",
        "a/b/c",
        "a/b@1/p/0/x",
        "a/b/p/0",
        "a/b@01/p/0",
        "a/b@1/p/-1",
        "a/b@1/p/00",
        "a b/b@1/p/0",
    ],
)
def test_what_is_no_uid_is_refused(uid: str) -> None:
    with pytest.raises(QueryError, match="not a chunk's uid"):
        parse_uid(uid)


@pytest.mark.parametrize(
    ("doc_id", "stem"),
    [
        ("readme.md", "readme"),
        ("a.b/readme.tar.gz", "a.b/readme.tar"),
        ("a.b/readme", "a.b/readme"),
        ("a/.profile", "a/.profile"),
        ("run_R-1042", "run_R-1042"),
        ("x.", "x"),
    ],
)
def test_a_stem_is_the_document_id_without_its_last_suffix(doc_id: str, stem: str) -> None:
    assert document_stem(doc_id) == stem
    assert chunk_id(doc_id, 4) == f"{stem}:chunk4"
