"""Slow, obvious models of the two parsers: whole text, line by line, no resuming."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Line(NamedTuple):
    start: int
    end: int
    number: int
    text: str
    blank: bool


class Expected(NamedTuple):
    start: int
    end: int
    start_line: int
    end_line: int
    headings: tuple[str, ...]


def split_lines(text: str, cr_rule: bool = True) -> list[Line]:
    """Lines without their ends; ``text`` of the first without the BOM that tests look through."""
    ending = "\r" if cr_rule and "\n" not in text and "\r" in text else "\n"
    lines = []
    at = 0
    while at < len(text):
        found = text.find(ending, at)
        after = len(text) if found < 0 else found
        end = after - 1 if found >= 0 and ending == "\n" and text[at:after].endswith("\r") else after
        seen = text[at:end].removeprefix("\ufeff") if at == 0 else text[at:end]
        lines.append(Line(at, end, len(lines) + 1, seen, not seen.strip(" \t\r")))
        at = after + 1
    return lines


def trimmed(lines: Sequence[Line], headings: tuple[str, ...]) -> list[Expected]:
    content = [line for line in lines if not line.blank]
    if not content:
        return []
    first, last = content[0], content[-1]
    return [Expected(first.start, last.end, first.number, last.number, headings)]


def slow_paragraphs(text: str, cr_rule: bool = True) -> list[Expected]:
    blocks: list[list[Line]] = []
    previous_blank = True
    for line in split_lines(text, cr_rule):
        if not line.blank:
            if previous_blank:
                blocks.append([])
            blocks[-1].append(line)
        previous_blank = line.blank
    chunks: list[Expected] = []
    open_headings: list[tuple[int, str]] = []
    pending: list[Line] = []
    for block in blocks:
        pending += block
        if all(re.match(r"#{1,6}[ \t]+\S", line.text) for line in block):
            for line in block:
                marks, _, title = line.text.replace("\t", " ").partition(" ")
                title = line.text[len(marks) :].strip(" \t\r")
                title = re.sub(r"(^|[ \t]+)#+$", "", title)
                open_headings = [*(h for h in open_headings if h[0] < len(marks)), (len(marks), title)]
            continue
        chunks += trimmed(pending, tuple(title for _, title in open_headings))
        pending = []
    return chunks + trimmed(pending, tuple(title for _, title in open_headings))


class Kind(NamedTuple):
    """What a log line is, apart from what stands before it."""

    stamped: bool
    mark: str | None = None
    title: str = ""


def slow_messages(text: str, kind_of: Callable[[str], Kind]) -> list[Expected]:
    messages: list[tuple[Kind, list[Line]]] = []
    seen_stamp = False
    for line in split_lines(text, cr_rule=False):
        kind = kind_of(text[line.start : line.end])
        if kind.stamped or not seen_stamp:
            messages.append((kind, [line]))
        else:
            messages[-1][1].append(line)
        seen_stamp = seen_stamp or kind.stamped
    return [
        chunk
        for title, unit in slow_units(messages)
        for piece in pieces(unit)
        for chunk in trimmed(piece, title)
    ]


def slow_units(messages: list[tuple[Kind, list[Line]]]) -> list[tuple[tuple[str, ...], list[list[Line]]]]:
    units: list[tuple[tuple[str, ...], list[list[Line]]]] = []
    at = 0
    while at < len(messages):
        kind = messages[at][0]
        last = at
        if kind.mark == "group":
            while last + 1 < len(messages) and messages[last + 1][0].mark != "group":
                last += 1
                if messages[last][0].mark == "endgroup":
                    break
        elif kind.mark in (None, "endgroup"):
            while last + 1 < len(messages) and messages[last + 1][0].mark in (None, "endgroup"):
                last += 1
        title = (kind.title,) if kind.title else ()
        units.append((title, [lines for _, lines in messages[at : last + 1]]))
        at = last + 1
    return units


def pieces(unit: list[list[Line]]) -> list[list[Line]]:
    done: list[list[Line]] = [[]]
    for message in unit:
        if len(done[-1]) > 60:
            done.append([])
        for own, line in enumerate(message):
            if own and own % 60 == 0:
                done.append([])
            done[-1].append(line)
    return done
