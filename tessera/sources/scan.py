"""The files of a source's folder, found without ever leaving it.

A file's document id is its POSIX path relative to the folder, as the file system spells it. Symbolic
links are followed where they stay inside. Hidden files and folders (``.git``, ``.env``) are skipped,
unless a link that is not hidden leads to them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tessera.errors import EventError, SourceError
from tessera.events.change import MediaType, SourceKind
from tessera.events.identity import check_doc_id
from tessera.sources.kinds import media_type


class SourceProblem(NamedTuple):
    """A file or folder that was left out, and why. ``path`` is relative to the source's folder."""

    path: str
    reason: str


class FileState(NamedTuple):
    """What tells, without reading it, that a file has changed."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int


class SourceFile(NamedTuple):
    """One file that is a document. ``path`` has its links resolved."""

    doc_id: str
    path: str
    media_type: MediaType
    state: FileState


@dataclass(slots=True)
class Scan:
    """The files found, by document id, and what was left out.

    ``unknown`` names files and folders (relative, POSIX) that could not be looked into: nothing can be
    said about what is below them, so nothing there counts as gone. ``skipped`` counts files of types that
    the source does not hold.
    """

    files: dict[str, SourceFile] = field(default_factory=dict)
    problems: list[SourceProblem] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    skipped: int = 0

    def is_gone(self, doc_id: str) -> bool:
        """Whether a document that was here once is certainly not here now."""
        if doc_id in self.files:
            return False
        parts = doc_id.split("/")
        return not any("/".join(parts[:n]) in self.unknown for n in range(1, len(parts) + 1))


def file_state(status: os.stat_result) -> FileState:
    """The state that a ``stat`` result describes."""
    return FileState(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def scan(folder: Path, kind: SourceKind) -> Scan:
    """Find the files of a source of this kind in ``folder``.

    Raises :class:`~tessera.errors.SourceError` where the folder itself cannot be listed: an unmounted
    disk must never look like a folder whose files were all deleted.
    """
    root = os.path.realpath(folder)
    try:
        with os.scandir(root):
            pass
    except OSError as error:
        raise SourceError(
            f"source folder {folder}: {_reason(error)}; give a folder that exists and can be listed"
        ) from error
    return _Walk(root, kind).run()


class _Walk:
    """One pass over a folder: real folders first, so that links cannot rename what they hold."""

    def __init__(self, root: str, kind: SourceKind) -> None:
        self._root = root
        self._kind = kind
        self._found = Scan()
        self._walked = {root: ""}
        self._links: list[tuple[str, str]] = []

    def run(self) -> Scan:
        self._folder(self._root, "")
        while self._links:
            target, doc_path = self._links.pop(0)
            self._linked_folder(target, doc_path)
        return self._found

    def _folder(self, path: str, prefix: str) -> None:
        pending = [(path, prefix)]
        while pending:
            folder, above = pending.pop()
            for entry in self._entries(folder, above):
                name = above + entry.name
                if entry.is_symlink():
                    self._link(entry.path, name)
                elif entry.is_dir(follow_symlinks=False):
                    self._walked[entry.path] = name
                    pending.append((entry.path, name + "/"))
                else:
                    self._file(entry.path, name)

    def _entries(self, folder: str, above: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            self._fail(above.rstrip("/"), error)
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if _is_utf8(entry.name):
                yield entry
            else:
                shown = os.fsencode(above + entry.name).decode("utf-8", "backslashreplace")
                self._problem(shown, "its name is not UTF-8; rename it")

    def _link(self, path: str, name: str) -> None:
        try:
            target = os.path.realpath(path, strict=True)
            is_folder = os.path.isdir(target)
        except OSError as error:
            self._fail(name, error)
            return
        if target != self._root and not target.startswith(self._root.rstrip("/") + "/"):
            self._problem(name, "a symbolic link that leaves the source's folder; not followed")
        elif is_folder:
            self._links.append((target, name))
        else:
            self._file(target, name)

    def _linked_folder(self, target: str, name: str) -> None:
        read_as = self._walked.get(target)
        if read_as is not None:
            self._problem(name, f"a symbolic link to {read_as or 'the folder itself'}, which is read already")
            return
        self._walked[target] = name
        self._folder(target, name + "/")

    def _file(self, path: str, name: str) -> None:
        kind = media_type(self._kind, name)
        if kind is None:
            self._found.skipped += 1
            return
        try:
            check_doc_id(name)
            status = os.stat(path, follow_symlinks=False)
        except EventError as error:
            self._problem(name, f"its name cannot be a document's id: {error}; rename it")
            return
        except OSError as error:
            self._fail(name, error)
            return
        if stat.S_ISREG(status.st_mode):
            self._found.files[name] = SourceFile(name, path, kind, file_state(status))
        else:
            self._problem(name, "not a regular file")

    def _problem(self, name: str, reason: str) -> None:
        self._found.problems.append(SourceProblem(name, reason))

    def _fail(self, name: str, error: OSError) -> None:
        self._problem(name, _reason(error))
        if not isinstance(error, FileNotFoundError):
            self._found.unknown.add(name)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
