"""Migrate a live corpus between two policies under load, and judge every answer by a model.

    python -m bench.migration              the migration, 20 moves of the release, freshness
    python -m bench.migration --chaos      the crash form, see bench/chaos.py

The embedded servers, worker processes and a ``tessera serve`` process do what they do in production; this
process publishes, asks and gives the operator's commands. Where TESSERA_DATA names a folder with the RFCs,
they are part of the corpus.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass, field

from bench import chaos
from bench.answers import Verdict, percentile_ms
from bench.crash import Ordeal
from bench.installation import CANDIDATE, Installation, Plan, Report, compare, installation, under_load
from tessera.generations.contraction import abandon
from tessera.generations.cutover import cutover, rollback

AROUND_S = 2.0
"""Seconds from the beginning of a cutover's command that count as around it."""


@dataclass(slots=True)
class Figures:
    """What a migration measured; times in milliseconds."""

    faults: list[str] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    p99_before: float = 0.0
    p99_between: float = 0.0
    p99_around: float = 0.0
    queries_around: int = 0
    moves: list[float] = field(default_factory=list)
    freshness_quiet: float = 0.0
    freshness_filling: float = 0.0
    changes: int = 0

    @property
    def failed(self) -> bool:
        """Whether anything is not as it must be; figures of time are for the reader to judge."""
        return bool(self.faults or self.verdict.faults)


async def migrate(plan: Plan, report: Report) -> Figures:
    """The migration of the issue: create, backfill, verify, compare, cutover, rollback, cutover, and on."""
    ordeal = Ordeal(workers=plan.workers, partitions=plan.partitions, timeout_s=plan.timeout_s)
    figures = Figures()
    async with installation(plan, ordeal, report) as here:
        async with under_load(here, plan):
            await _compare_freshness(here, plan, figures)
            await here.create("g2", CANDIDATE)
            report(f"g2 complete after {await here.until_complete('g2'):.1f} s")
            await here.prove("g2")
            await _move_back_and_forth(here, plan, figures)
        await here.until_applied()
        figures.faults = await compare(here, ["g1", "g2"])
        figures.verdict = here.verdict()
        figures.changes = len(here.traffic.sent)
    return figures


async def _compare_freshness(here: Installation, plan: Plan, figures: Figures) -> None:
    """Rounds of: quiet, then a backfill that is abandoned once it is complete. One generation serves."""
    quiet: list[tuple[float, float]] = []
    filling: list[tuple[float, float]] = []
    for number in range(plan.rounds):
        began = time.monotonic()
        await asyncio.sleep(plan.quiet_s)
        quiet.append((began, time.monotonic()))
        began, name = time.monotonic(), f"try{number + 1}"
        await here.create(name, CANDIDATE)
        await here.until_complete(name)
        filling.append((began, time.monotonic()))
        removal = await abandon(here.operator, name)
        assert removal.done, removal.waits_for
        here.report(f"backfill {number + 1}: {filling[-1][1] - filling[-1][0]:.1f} s, removed again")
    figures.freshness_quiet = here.freshness_p99(quiet)
    figures.freshness_filling = here.freshness_p99(filling)


async def _move_back_and_forth(here: Installation, plan: Plan, figures: Figures) -> None:
    """Cutovers and rollbacks by turns, as far apart as the windows around them are long, thrice."""
    before = time.monotonic()
    await asyncio.sleep(plan.quiet_s)
    until = time.monotonic()
    for number in range(plan.cutovers):
        await here.move(cutover(here.operator, "g2") if number % 2 == 0 else rollback(here.operator))
        await asyncio.sleep(max(0.0, here.moves[-1].began + 3 * AROUND_S - time.monotonic()))
        here.report(f"  move {number + 1}: {here.moves[-1].release} {here.moves[-1].generation}")
    around: list[float] = []
    between: list[float] = []
    for each in here.asker.asked:
        if each.began < until or each.failure:
            continue
        near = any(-AROUND_S / 2 < each.began - move.began < AROUND_S for move in here.moves)
        (around if near else between).append(each.seconds)
    figures.p99_before = percentile_ms(
        (each.seconds for each in here.asker.asked if before <= each.began < until), 0.99
    )
    figures.p99_around, figures.queries_around = percentile_ms(around, 0.99), len(around)
    figures.p99_between = percentile_ms(between, 0.99)
    figures.moves = [1000 * (move.ended - move.began) for move in here.moves]


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line; exit status 1 where anything is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m bench.migration", description=__doc__)
    parser.add_argument("--chaos", action="store_true", help="kill processes at every failpoint instead")
    for name in ("workers", "changes", "quiet_s", "cutovers", "rounds", "seed"):
        default = getattr(Plan(), name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    given = vars(parser.parse_args(arguments))
    crash_form = given.pop("chaos")
    plan = Plan(**given)
    if crash_form:
        return chaos.main(plan, tell)
    figures = asyncio.run(migrate(plan, tell))
    print_figures(figures)
    return 1 if figures.failed else 0


def tell(line: str) -> None:
    """Progress, at once."""
    print(line, flush=True)


def print_figures(figures: Figures) -> None:
    """What was found and measured."""
    verdict = figures.verdict
    print(f"{figures.changes} changes; {verdict.answers} answers with {verdict.hits} hits judged")
    print(f"  {verdict.markers_found} markers found, {verdict.markers_absent} rightly not")
    print(f"  faults in answers: {dict(verdict.faults) or 'none'}; in generations: {len(figures.faults)}")
    for line in (*verdict.told, *figures.faults[:20]):
        print(f"  {line}")
    around, ratio = figures.p99_around, figures.p99_around / figures.p99_before
    print(
        f"query p99 {figures.p99_before:.1f} ms before, {around:.1f} ms around {len(figures.moves)} moves "
        f"({figures.queries_around} queries), {figures.p99_between:.1f} ms between: ratio {ratio:.2f}"
    )
    moves = [each / 1000 for each in figures.moves]
    median, most = percentile_ms(moves, 0.5), percentile_ms(moves, 1)
    print(f"a whole command in this process: median {median:.0f} ms, most {most:.0f} ms")
    print(
        f"freshness p99 {figures.freshness_quiet:.0f} ms quiet, {figures.freshness_filling:.0f} ms during a "
        f"backfill: ratio {figures.freshness_filling / figures.freshness_quiet:.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
