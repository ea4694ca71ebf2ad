"""One HTML page of a run: it opens without a network, and carries its plots and its styles."""

from __future__ import annotations

from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tessera.errors import PlanError, SettingsError
from tessera.lab.results import CaseOutcome, ContextFigures, LabResult

SHOWN: Final = 200
"""Failures of one policy in a report: a page of tens of thousands opens in no browser. JSON has all."""

_LIBRARIES: Final = ("matplotlib", "jinja2")


def require_libraries() -> None:
    """:class:`~tessera.errors.SettingsError` where what draws a report is not installed."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise SettingsError(f"--report: needs {' and '.join(missing)}: pip install 'tessera-indexer[lab]'")


def require_folder(path: Path) -> None:
    """PlanError where the page could not be written after a long run, for want of its folder."""
    if not path.parent.is_dir():
        raise PlanError(f"--report: {path}: there is no folder {path.parent}: make it, or name another file")


def write_report(result: LabResult, path: Path) -> None:
    """Write the page. PlanError where the file cannot be written, as :func:`require_libraries` else."""
    page = render(result)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"--report: {path}: cannot be written ({error.strerror}): name another file"
        ) from error


def render(result: LabResult) -> str:
    """The page of a run, complete HTML."""
    require_libraries()
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from tessera.lab import charts

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["share"] = "{:.3f}".format
    environment.filters["thousands"] = "{:,}".format
    source = files("tessera.lab").joinpath("report.html.j2").read_text(encoding="utf-8")
    drawn = (charts.funnel, charts.tradeoff, charts.borders, charts.lengths)
    # Markup is safe here: matplotlib escapes the names that it draws, and all else are numbers.
    plots = {draw.__name__: Markup(draw(result)) for draw in drawn}  # noqa: S704
    return environment.from_string(source).render(
        result=result,
        plots=plots,
        ways=[_way(each) for each in result.policies[0].contexts],
        best=_best(result),
        fates=charts.FATE_WORDS,
        cuts=charts.CUTS,
        dashes=[" ".join(map(str, each)) for each in charts.DASHES],
        series=[f"--series-{number % len(charts.SERIES)}" for number in range(len(result.policies))],
        shown=SHOWN,
        lost=_lost(result),
    )


def _lost(result: LabResult) -> dict[str, list[CaseOutcome]]:
    """By policy the cases that some context does not keep, those that most lose first."""
    return {
        policy.name: sorted(
            (each for each in policy.outcomes if set(each.fates) != {"kept"}),
            key=lambda each: each.fates.count("kept"),
        )
        for policy in result.policies
    }


def _way(found: ContextFigures) -> str:
    return f"{found.assembly} at {found.budget}"


def _best(result: LabResult) -> dict[str, float]:
    """The best policy's figure of each column, to be set in bold."""
    policies = result.policies
    best = {
        "representability": max(each.representability for each in policies),
        "recall": max(each.candidates.recall for each in policies),
        "mrr": max(each.candidates.mrr for each in policies),
    }
    for number in range(len(policies[0].contexts)):
        for name in ("recall", "precision", "iou", "grounding"):
            best[f"{name} {number}"] = max(getattr(each.contexts[number], name) for each in policies)
    return best
