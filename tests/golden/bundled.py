"""The bundled corpora as the tests see them: every file with its source, and every chunk of it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from tessera.events.change import MediaType, SourceKind
from tessera.sources.kinds import media_type

CORPORA = Path(str(files("tessera.sources"))) / "corpora"
SOURCES: dict[str, SourceKind] = {"handbook": "documents", "devex": "devex", "github": "github"}


class BundledFile(NamedTuple):
    source: str
    doc_id: str
    media_type: MediaType
    text: str

    @property
    def stem(self) -> str:
        return self.doc_id.rpartition(".")[0]


def bundled_files() -> Iterator[BundledFile]:
    for source, kind in SOURCES.items():
        folder = CORPORA / kind
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            doc_id = path.relative_to(folder).as_posix()
            found = media_type(kind, doc_id)
            assert found is not None, f"{path} would not be indexed"
            yield BundledFile(source, doc_id, found, path.read_bytes().decode())
