"""Small plans for tests: documents in a folder, cases with their digests, and the TOML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tessera.generations.cases import evidence_digest

TEXTS = {
    "rivers/levels.md": (
        "# Levels\n\nThe gauge at the weir is read every hour. A level above four metres is a warning.\n\n"
        "## Who is told\n\nThe flood desk is told first. It then calls the mayor and the harbour.\n"
    ),
    "rivers/table.md": "# Sites\n\n| site | owner |\n|---|---|\n| weir | county |\n| lock | port |\n",
    "kitchen.md": "# Kitchen\n\nThe kettle boils.\n\nCups stand in the left cupboard, plates in the right.\n",
}
CASES = {
    "level": ("When is a level a warning?", "rivers/levels.md", "A level above four metres is a warning."),
    "told": (
        "Who is told of a warning, and who is called?",
        "rivers/levels.md",
        "The flood desk is told first. It then calls the mayor and the harbour.",
    ),
    "across": (
        "How often is the gauge read, and who is told first?",
        "rivers/levels.md",
        TEXTS["rivers/levels.md"][
            TEXTS["rivers/levels.md"].index("The gauge") : TEXTS["rivers/levels.md"].index(" It then")
        ],
    ),
    "lock": ("Who owns the lock?", "rivers/table.md", "| lock | port |"),
    "cups": ("Where do cups and plates stand?", "kitchen.md", "Cups stand in the left cupboard"),
    "plates": ("Where do cups and plates stand?", "kitchen.md", "plates in the right."),
}
PLAN = """
documents = [{source = "notes", path = "texts"}]
questions = "questions.jsonl"
k = 3
budgets = [40, 12]
assembly = ["joined", "sentences"]
[[policies]]
policy = "paragraph"
[[policies]]
policy = "tiny.toml"
"""
TINY = 'name = "tiny"\n[documents]\nparser = "window"\nsize = 7\noverlap = 2\n'


def case_line(name: str, **changed: Any) -> str:
    question, doc_id, evidence = CASES[name]
    start = TEXTS[doc_id].index(evidence)
    case = {"id": name, "question": question, "source": "notes", "doc_id": doc_id, "start": start}
    case |= {"end": start + len(evidence), "digest": evidence_digest(evidence)}
    return json.dumps(case | changed)


def write_plan(folder: Path, plan: str = PLAN, lines: list[str] | None = None) -> Path:
    """Write a plan with all that it leads to, and return its path."""
    for doc_id, text in TEXTS.items():
        path = folder / "texts" / doc_id
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (folder / "tiny.toml").write_text(TINY)
    written = [case_line(name) for name in CASES] if lines is None else lines
    (folder / "questions.jsonl").write_text("\n".join(written), encoding="utf-8")
    (folder / "lab.toml").write_text(plan, encoding="utf-8")
    return folder / "lab.toml"
