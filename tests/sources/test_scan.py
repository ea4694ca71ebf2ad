from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from tessera.errors import SourceError
from tessera.sources.content import read_file
from tessera.sources.scan import Scan, SourceProblem, scan


def write(path: Path, content: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def reasons(found: Scan) -> dict[str, str]:
    return {problem.path: problem.reason for problem in found.problems}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "folder"
    path.mkdir()
    return path


def test_ids_are_posix_paths_below_the_folder(folder: Path) -> None:
    for name in ("readme.md", "a/readme.md", "b/c/readme.md"):
        write(folder / name)
    assert set(scan(folder, "documents").files) == {"readme.md", "a/readme.md", "b/c/readme.md"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("documents", {"a.md": "text/markdown", "b.MARKDOWN": "text/markdown", "c.txt": "text/plain"}),
        ("devex", {"run_R-1.log": "text/x-run-log"}),
        ("github", {"run_R-1.log": "text/x-ci-log", "c.txt": "text/x-ci-log"}),
    ],
)
def test_the_kind_of_a_source_decides_which_files_it_takes(
    folder: Path, kind: Any, expected: dict[str, str]
) -> None:
    for name in ("a.md", "b.MARKDOWN", "c.txt", "run_R-1.log", "d.py", "a.md~", "#a.md#", "md"):
        write(folder / name)
    assert {name: file.media_type for name, file in scan(folder, kind).files.items()} == expected


@pytest.mark.parametrize(
    "name",
    [
        "10:30 minutes.md",
        "issue #7.md",
        "a@b%2F?&=+.md",
        "with  spaces .md",
        "naïve-é.md",
        "naïve-e\u0301.md",
        "日本語/メモ.md",
        "back\\slash.md",
        '\'"quoted".md',
        "..hidden-not/../x.md",
    ],
)
def test_names_are_kept_as_the_file_system_spells_them(folder: Path, name: str) -> None:
    name = os.path.normpath(name)
    write(folder / name)
    found = scan(folder, "documents")
    assert list(found.files) == [name]
    assert not found.problems


def test_composed_and_decomposed_names_are_two_documents(folder: Path) -> None:
    write(folder / "é.md")
    write(folder / "e\u0301.md")
    assert len(scan(folder, "documents").files) == len(os.listdir(folder)) == 2


def test_hidden_files_and_folders_are_skipped(folder: Path) -> None:
    for name in (".a.md", ".git/b.md", "c/.d.md"):
        write(folder / name)
    assert scan(folder, "documents") == Scan()


def test_a_name_that_is_not_utf8_is_reported(folder: Path) -> None:
    write(folder / "fine.md")
    (Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.md"))).write_text("x")
    found = scan(folder, "documents")
    assert set(found.files) == {"fine.md"}
    assert found.problems == [SourceProblem("caf\\xe9.md", "its name is not UTF-8; rename it")]


def test_a_name_that_cannot_be_an_id_is_reported(folder: Path) -> None:
    write(folder / "two\nlines.md")
    found = scan(folder, "documents")
    assert not found.files
    assert "U+000A" in reasons(found)["two\nlines.md"]


@pytest.mark.parametrize("target", ["../outside.md", "../outside", "/etc", "..", "../folder-2/inside.md"])
def test_a_link_that_leaves_the_folder_is_refused_and_reported(
    tmp_path: Path, folder: Path, target: str
) -> None:
    write(tmp_path / "outside.md")
    write(tmp_path / "outside" / "secret.md")
    write(tmp_path / "folder-2" / "inside.md")
    (folder / "link.md").symlink_to(target)
    found = scan(folder, "documents")
    assert not found.files
    assert "leaves the source's folder" in reasons(found)["link.md"]
    assert found.is_gone("link.md")


def test_a_link_inside_the_folder_is_followed_even_to_a_hidden_place(folder: Path) -> None:
    # How Kubernetes mounts a ConfigMap: a.md -> ..data/a.md, ..data -> ..2026_01/.
    write(folder / "..2026_01" / "a.md", "content")
    (folder / "..data").symlink_to("..2026_01")
    (folder / "a.md").symlink_to("..data/a.md")
    found = scan(folder, "documents")
    assert list(found.files) == ["a.md"]
    assert read_file(found.files["a.md"], 100)[0].content == b"content"


def test_a_folder_reached_again_by_a_link_is_read_once_under_its_real_name(folder: Path) -> None:
    write(folder / "z" / "a.md")
    (folder / "b").symlink_to("z")
    found = scan(folder, "documents")
    assert list(found.files) == ["z/a.md"]
    assert reasons(found) == {"b": "a symbolic link to z, which is read already"}


def test_loops_of_links_end_and_are_reported(folder: Path) -> None:
    write(folder / "sub" / "a.md")
    (folder / "sub" / "up").symlink_to("..")
    (folder / "sub" / "self").symlink_to("../sub")
    (folder / "x.md").symlink_to("y.md")
    (folder / "y.md").symlink_to("x.md")
    found = scan(folder, "documents")
    assert list(found.files) == ["sub/a.md"]
    assert set(reasons(found)) == {"sub/up", "sub/self", "x.md", "y.md"}


def test_folders_that_link_to_each_other_do_not_multiply(folder: Path) -> None:
    for n in range(12):
        write(folder / str(n) / "a.md")
        for m in range(12):
            (folder / str(n) / f"to-{m}").symlink_to(f"../{m}")
    assert len(scan(folder, "documents").files) == 12


def test_a_broken_link_counts_as_gone(folder: Path) -> None:
    (folder / "a.md").symlink_to("nowhere.md")
    found = scan(folder, "documents")
    assert found.is_gone("a.md")
    assert set(reasons(found)) == {"a.md"}


def test_pipes_and_sockets_are_reported_and_never_opened(folder: Path) -> None:
    os.mkfifo(folder / "pipe.md")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(folder)
        try:
            listener.bind("socket.md")
        finally:
            os.chdir(here)
    found = scan(folder, "documents")
    assert not found.files
    assert reasons(found) == {"pipe.md": "not a regular file", "socket.md": "not a regular file"}


def test_a_folder_that_cannot_be_listed_keeps_its_documents(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "open" / "a.md")
    write(folder / "shut" / "deep" / "b.md")
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = scan(folder, "documents")
    assert list(found.files) == ["open/a.md"]
    assert reasons(found) == {"shut": "permission denied"}
    assert not found.is_gone("shut/deep/b.md")
    assert found.is_gone("open/gone.md")
    assert found.is_gone("shut-not/b.md")


@pytest.mark.parametrize("missing", [True, False])
def test_a_source_folder_that_is_missing_or_no_folder_is_an_error(folder: Path, missing: bool) -> None:
    path = folder / "nowhere" if missing else write(folder / "file.md")
    with pytest.raises(SourceError, match="source folder"):
        scan(path, "documents")


def test_the_source_folder_itself_may_be_a_link(tmp_path: Path, folder: Path) -> None:
    write(folder / "a.md")
    (tmp_path / "link").symlink_to(folder)
    assert list(scan(tmp_path / "link", "documents").files) == ["a.md"]


def test_a_file_swapped_for_a_link_after_the_scan_is_not_read(tmp_path: Path, folder: Path) -> None:
    secret = write(tmp_path / "secret.md")
    path = write(folder / "a.md")
    file = scan(folder, "documents").files["a.md"]
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        read_file(file, 100)


def test_a_file_swapped_for_a_pipe_after_the_scan_does_not_block(folder: Path) -> None:
    path = write(folder / "a.md")
    file = scan(folder, "documents").files["a.md"]
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SourceError, match="not a regular file"):
        read_file(file, 100)


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
def test_a_file_over_the_maximum_size_is_refused(folder: Path, size: int, fits: bool) -> None:
    write(folder / "a.md", "x" * size)
    file = scan(folder, "documents").files["a.md"]
    if fits:
        content, state, stable = read_file(file, 100)
        assert (content.content, state, stable) == (b"x" * size, file.state, True)
    else:
        with pytest.raises(SourceError, match=r"larger than 100 bytes.*TESSERA_MAX_DOCUMENT_BYTES"):
            read_file(file, 100)


def test_files_of_other_types_are_counted(folder: Path) -> None:
    for name in ("a.md", "b.pdf", "c/d.html", ".hidden"):
        write(folder / name)
    found = scan(folder, "documents")
    assert (list(found.files), found.skipped, found.problems) == (["a.md"], 2, [])
