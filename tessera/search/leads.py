"""What leads the sections that hits are in: the first chunk under each heading of their paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tessera.index.segment import HeadingPath
from tessera.search.snapshot import Found, Snapshot


def leads_of(found: Sequence[Found], snapshot: Snapshot) -> dict[int, list[Found]]:
    """By the number of each hit the first chunks of the sections it is in, the innermost first.

    Only for documents with two hits or more: one is one piece. A section is the run of chunks around the hit
    whose paths begin alike; two of the same title, one right behind the other, cannot be told apart.
    """
    documents: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, each in enumerate(found):
        if each.headings:
            documents[each.document.source, each.document.doc_id].append(number)
    leads = {}
    for (source, doc_id), numbers in documents.items():
        if len(numbers) > 1:
            chunks = snapshot.document(source, doc_id, None)  # the hits show that the caller may see it
            paths = [chunk.headings for chunk in chunks]
            place = {chunk.ordinal: index for index, chunk in enumerate(chunks)}
            for number in numbers:
                first = section_starts(paths, place[found[number].ordinal])
                leads[number] = [chunks[index] for index in first]
    return leads


def section_starts(paths: Sequence[HeadingPath], index: int) -> list[int]:
    """Where the sections of the chunk at ``index`` begin, the innermost first; ``paths`` are a document's."""
    path, first = paths[index], []
    for depth in range(len(path), 0, -1):
        while index > 0 and paths[index - 1][:depth] == path[:depth]:
            index -= 1
        first.append(index)
    return first
