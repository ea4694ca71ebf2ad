"""The bundled folders through the connector, and every change through the wire format."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from index_model import DEVEX, GITHUB, HANDBOOK, IndexModel

from tessera.events.catalog import SourceDeclaration
from tessera.events.change import Change, Record, document_key
from tessera.events.decoding import decode_record
from tessera.events.encoding import encode_event
from tessera.sources.folder import FolderSource

CORPORA = Path(str(files("tessera.sources"))) / "corpora"


def over_the_wire(change: Change) -> object:
    event = encode_event(change)
    return decode_record(Record("topic", 0, 0, event.key, event.value))


@pytest.mark.parametrize("declaration", [HANDBOOK, DEVEX, GITHUB], ids=lambda each: each.kind)
def test_bundled_folders_are_taken_whole_and_without_problems(declaration: SourceDeclaration) -> None:
    folder = CORPORA / declaration.kind
    source = FolderSource(folder, declaration)
    index = IndexModel(declaration)
    changes = index.apply(source.initial({}))
    assert source.problems == ()
    assert index.contents == {
        path.relative_to(folder).as_posix(): path.read_bytes().decode()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert [over_the_wire(change) for change in changes] == changes


@pytest.mark.parametrize("declaration", [HANDBOOK, DEVEX], ids=lambda each: each.kind)
def test_bytes_and_names_of_every_kind_survive_the_wire(
    tmp_path: Path, declaration: SourceDeclaration
) -> None:
    suffix = ".log" if declaration.is_log else ".md"
    for name, content in {
        "10:30 é #1": b"\xef\xbb\xbfbom\r\n",
        "bytes": b"caf\xe9\n\xff\xfe\n\xe2\x82",
        "nul": b"a\x00b\r\rc\n",
    }.items():
        (tmp_path / (name + suffix)).write_bytes(content)
    changes = list(FolderSource(tmp_path, declaration).initial({}))
    assert [over_the_wire(change) for change in changes] == changes
    assert [encode_event(change).key for change in changes] == [
        document_key(declaration.name, name + suffix).encode() for name in ("10:30 é #1", "bytes", "nul")
    ]
