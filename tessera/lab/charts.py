"""The plots of a report: inline SVG whose colours and fonts are those of the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tessera.lab.results import LabResult, PolicyResult
from tessera.lab.stages import FATES, Fate

INK, MUTED, GRID = "#010101", "#010102", "#010103"
FATE_COLOURS: Final[dict[Fate, str]] = {
    "kept": "#010104",
    "chunking": "#010105",
    "retrieval": "#010106",
    "packing": "#010107",
    "grounding": "#010108",
}
DASHES: Final[tuple[tuple[float, ...], ...]] = ((), (5, 3), (1.5, 2), (7, 2, 1.5, 2), (9, 4), (2, 1))
"""How the lines of each assembly are broken, in points: as many as there are assemblies."""

SERIES: Final = ("#010109", "#01010a", "#01010b", "#01010c", "#01010d", "#01010e")
_VARIABLES: Final = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    **{colour: f"--{fate}" for fate, colour in FATE_COLOURS.items()},
    **{colour: f"--series-{number}" for number, colour in enumerate(SERIES)},
}
"""Stand-ins: matplotlib knows no variables of CSS, so each colour is drawn as one that nothing else has."""

FATE_WORDS: Final[dict[Fate, str]] = {
    "kept": "kept",
    "chunking": "cut by every chunk",
    "retrieval": "not found",
    "packing": "not packed",
    "grounding": "not verbatim",
}

CUTS: Final[tuple[tuple[str, Fate], ...]] = (
    ("between blocks", "kept"),
    ("between sentences or lines", "packing"),
    ("inside a sentence or a line", "chunking"),
)
"""Classes of borders, from harmless to harmful, and the colour each shares with a fate."""

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
}

_WIDTH: Final = 10.4


def funnel(result: LabResult) -> str:
    """Where each policy loses the cases, a panel for every way of packing."""
    policies = result.policies
    ways = policies[0].contexts
    budgets = len({way.budget for way in ways})
    rows = len(ways) // budgets

    def draw(figure: Figure) -> None:
        grid = figure.subplots(rows, budgets, sharex=True, sharey=True, squeeze=False)
        for number, way in enumerate(ways):
            axes: Axes = grid[number // budgets][number % budgets]
            axes.set_title(f"{way.assembly}, {way.budget} tokens")
            _stacked(
                axes,
                policies,
                [
                    (FATE_COLOURS[fate], [each.contexts[number].fates[fate] for each in policies])
                    for fate in FATES
                ],
            )
            axes.set_xlim(0, result.setup.cases)
        for axes in grid[-1]:
            axes.set_xlabel("cases")

    return _svg(draw, rows * (0.62 + 0.27 * len(policies)) + 0.3, "funnel")


def tradeoff(result: LabResult) -> str:
    """Recall and precision of the context by budget; one line per policy, dashes for further assemblies."""
    policies = result.policies
    names = list(dict.fromkeys(way.assembly for way in policies[0].contexts))

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 3)
        for axes, title, figure_of in zip(
            panels, ("recall", "precision", "IoU"), ("recall", "precision", "iou"), strict=True
        ):
            axes.set_title(f"{title} of the context")
            axes.grid(visible=True, axis="y")
            for number, policy in enumerate(policies):
                for dashes, assembly in zip(DASHES, names, strict=False):
                    ways = [way for way in policy.contexts if way.assembly == assembly]
                    axes.plot(
                        [way.budget for way in ways],
                        [getattr(way, figure_of) for way in ways],
                        color=SERIES[number % len(SERIES)],
                        linestyle=(0, dashes) if dashes else "-",
                        marker="o",
                        markersize=3.5,
                        linewidth=1.6,
                    )
            axes.set_ylim(bottom=0)
            axes.set_xticks(sorted({way.budget for way in policies[0].contexts}))
            axes.set_xlabel("budget, tokens")
            axes.tick_params(axis="y", labelcolor=MUTED)
        panels[0].set_ylim(0, 1.02)

    return _svg(draw, 2.6, "tradeoff")


def borders(result: LabResult) -> str:
    """What the inner borders of each policy's chunks cut, as shares."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        classes = [border_classes(policy) for policy in result.policies]
        totals = [max(sum(each), 1) for each in classes]
        shares = [
            (
                FATE_COLOURS[colour],
                [100 * each[number] / total for each, total in zip(classes, totals, strict=True)],
            )
            for number, (_, colour) in enumerate(CUTS)
        ]
        _stacked(axes, result.policies, shares, "{:.0f} %")
        axes.set_xlim(0, 100)
        axes.set_xlabel("per cent of the borders")

    return _svg(draw, 0.65 + 0.27 * len(result.policies), "borders")


def lengths(result: LabResult) -> str:
    """Cases by length of evidence, and how many of each length every policy holds whole."""
    counts = result.distributions.length

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        places = range(len(counts))
        axes.bar(places, list(counts.values()), width=0.86, color=GRID)
        width = 0.78 / len(result.policies)
        for number, policy in enumerate(result.policies):
            held = [policy.groups["length"][name].represented for name in counts]
            at = [place - 0.39 + width * (number + 0.5) for place in places]
            axes.bar(at, held, width=width * 0.86, color=SERIES[number % len(SERIES)])
        axes.set_xticks(list(places), list(counts))
        axes.tick_params(axis="x", length=0)
        axes.tick_params(axis="y", labelcolor=MUTED)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("tokens of evidence")
        axes.set_ylabel("cases")

    return _svg(draw, 2.5, "lengths")


def border_classes(policy: PolicyResult) -> tuple[int, int, int]:
    """How many of a policy's borders are of each class of :data:`CUTS`."""
    inside = sum(count for name, count in policy.borders.items() if ": inside" in name)
    blocks = policy.borders.get("between blocks", 0)
    return blocks, sum(policy.borders.values()) - blocks - inside, inside


def _stacked(
    axes: Axes,
    policies: Sequence[PolicyResult],
    layers: Sequence[tuple[str, Sequence[float]]],
    label: str = "{:.0f}",
) -> None:
    """Horizontal bars, the first policy on top, with the numbers in them where they fit."""
    left = [0.0] * len(policies)
    total = max(sum(values[row] for _, values in layers) for row in range(len(policies)))
    for colour, values in layers:
        axes.barh([each.name for each in policies], values, left=left, height=0.72, color=colour)
        for row, value in enumerate(values):
            if value >= 0.06 * max(total, 1):
                middle = left[row] + value / 2
                axes.text(
                    middle, row, label.format(value), ha="center", va="center", gid="on-bar", fontsize=8.5
                )
        left = [before + value for before, value in zip(left, values, strict=True)]
    axes.set_ylim(len(policies) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _svg(draw: Callable[[Figure], Any], height: float, name: str) -> str:
    """The drawing as an SVG element without anything to be fetched, and without ids that could collide."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure)
        buffer = io.StringIO()
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="(?:[a-z0-9]+|matplotlib\.axis)_\d+"', "", svg)
    svg = svg.replace('id="on-bar"', 'class="on-bar"')
    svg = re.sub(r'(<svg [^>]*?)width="[^"]*"', r'\1width="100%"', svg, count=1)
    svg = re.sub(r'(<svg [^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg
