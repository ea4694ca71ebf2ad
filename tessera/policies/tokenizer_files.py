"""Tokenizers from files of the library ``tokenizers`` (Hugging Face), by the digest of the file.

A policy's identity holds ``tokenizers@sha256:<64 hex digits>`` and no path. Whoever cuts by it finds the file
as ``<64 hex digits>.json`` in the folder of the setting ``tokenizers_dir``; each file is read once a process.

What counts as a token is where the model has one, made fit for spans of text:

* Each line is tokenized by itself, a very long one in pieces, without its line end and without the special
  tokens that a model puts around a text. So tokens of a log stay as they are when lines are appended.
* A token starts at its first character that is no blank space (nor a byte order mark); one of blank space
  alone is none.
* Tokens that start at the same character, such as the bytes of an emoji, are one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tessera.errors import PolicyError
from tessera.settings import DEFAULT_DATA_DIR

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

StartsOf = Callable[[str], npt.NDArray[np.int64]]
"""A tokenizer: where the tokens of a text start, in code points and rising."""

IDENTITY: Final = re.compile(r"tokenizers@sha256:([0-9a-f]{64})")

LONGEST_LINE: Final = 1 << 16
"""Code points of a line that are tokenized at once: the library takes a hundred bytes for each."""

BATCH_SIZE: Final = 1 << 19
"""Code points that are tokenized at once, for the same reason."""

_BLANK: Final = " \t\r\n\ufeff"
"""No chunk begins or ends with blank space, nor with a byte order mark that is all of a line."""

_LINE: Final = re.compile(r"[^\n]+")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class TokenizerFiles:
    """The tokenizers of one process, by identity; ``folder`` is where their files are."""

    def __init__(self, folder: Path = DEFAULT_DATA_DIR / "tokenizers") -> None:
        self.folder = folder
        self._read: dict[str, StartsOf] = {}
        self._data: dict[str, bytes] = {}

    def add(self, path: Path) -> str:
        """Read the file at ``path``; returns its identity. PolicyError where it is no tokenizer."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise PolicyError(f"tokenizer {path} cannot be read ({error.strerror}): check the path") from None
        identity = f"tokenizers@sha256:{hashlib.sha256(data).hexdigest()}"
        if identity not in self._read:
            self._read[identity] = _starts_of(data, path)
        self._data[identity] = data
        return identity

    def named(self, identity: str) -> StartsOf:
        """The tokenizer of this identity. PolicyError where its file is missing or another: it says where."""
        found = self._read.get(identity)
        if found is not None:
            return found
        path = self._path(identity)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise PolicyError(
                f"{identity} cannot be read ({error.strerror}): put its file at {path.absolute()} "
                "wherever a worker runs, or set tokenizers_dir to the folder that has it; then start "
                "the worker anew"
            ) from None
        digest = hashlib.sha256(data).hexdigest()
        if digest != path.stem:
            raise PolicyError(
                f"{path.absolute()} has the digest {digest}, not that of its name: put the file there that "
                "the policy was made with"
            )
        self._read[identity] = _starts_of(data, path)
        return self._read[identity]

    def keep(self, identities: Iterable[str]) -> None:
        """Put the files that :meth:`add` has read into the folder, where they are not there yet."""
        for identity in identities:
            data, path = self._data.get(identity), self._path(identity)
            if data is None or path.exists():
                continue
            self.folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self.folder, delete=False) as file:
                file.write(data)
            os.chmod(file.name, 0o644)  # workers may run as others; it is no secret
            os.replace(file.name, path)

    def _path(self, identity: str) -> Path:
        match = IDENTITY.fullmatch(identity)
        assert match is not None
        return self.folder / f"{match[1]}.json"


TOKENIZERS: Final = TokenizerFiles()
"""Those of this process: one of them can take a second to read and a hundred megabytes to keep."""


def _starts_of(data: bytes, path: Path) -> StartsOf:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise PolicyError(
            f"tokenizer {path} needs the library tokenizers: install the extra, "
            "`pip install 'tessera-indexer[tokenizers]'`"
        ) from None
    try:
        tokenizer = Tokenizer.from_buffer(data)
    except Exception as error:  # noqa: BLE001 - the library raises nothing more precise
        raise PolicyError(
            f"tokenizer {path} is no file of the library tokenizers ({error}): give a tokenizer.json"
        ) from None
    # A file may say that texts are cut off or filled up to a length: here they are counted.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: _starts(tokenizer, text)


def _starts(tokenizer: Tokenizer, text: str) -> npt.NDArray[np.int64]:
    found = [np.empty(0, np.int64)]
    for pieces, begins in _batches(_readable(text)):
        encodings = tokenizer.encode_batch(pieces, add_special_tokens=False)
        starts = chain.from_iterable(map(_piece_starts, pieces, begins, encodings))
        found.append(np.fromiter(starts, np.int64))
    return np.concatenate(found)


def _piece_starts(piece: str, begin: int, encoding: Encoding) -> Iterator[int]:
    last = -1
    for start, end in encoding.offsets:
        while start < end and piece[start] in _BLANK:
            start += 1
        if last < start < end:
            yield begin + start
            last = start


def _batches(text: str) -> Iterator[tuple[list[str], list[int]]]:
    """The lines of ``text``, and where each begins; of very long ones, pieces."""
    pieces: list[str] = []
    begins: list[int] = []
    size = 0
    for line in _LINE.finditer(text):
        start, end = line.span()
        while start < end:
            stop = _piece_end(text, start, end)
            pieces.append(text[start:stop])
            begins.append(start)
            size += stop - start
            start = stop
            if size >= BATCH_SIZE:
                yield pieces, begins
                pieces, begins, size = [], [], 0
    if pieces:
        yield pieces, begins


def _piece_end(text: str, start: int, end: int) -> int:
    """Where the piece ends that begins at ``start`` of a line: behind the last space that it may hold."""
    if end - start <= LONGEST_LINE:
        return end
    space = text.rfind(" ", start + 1, start + LONGEST_LINE)
    return space if space >= 0 else start + LONGEST_LINE


def _readable(text: str) -> str:
    """``text`` without halves of characters, which the library refuses, code point for code point."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text)
    return text
