"""`shortlist reproduce figure3-sampling`: who is who among authors, by exact Gibbs sampling and by races.

The print clusters the mentions of DBLP and Rexa with a trained model. Here mentions are made: three names,
each of several authors whose numbers of mentions fall off as a power, some of them of one field of research.
The races have their first batch of 50 factors, or the print's 3, or the print's widths as well.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", sections 5.3, C.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.platform.command_line import table
from shortlist.sampling.racing_normal import FIRST
from shortlist_client.progress import progress
from studies.experiments.coreference import (
    PRINTED_FIRST,
    Draw,
    Mentions,
    Run,
    exactly,
    make,
    printed,
    racing,
    sample,
)
from studies.experiments.plots import can_draw, figure
from studies.measurement import record

SEED = 53
DELTA = 0.05
WAYS: dict[str, Draw] = {
    "exact": exactly,
    "races": racing(DELTA, FIRST),
    "races, first batch 3": racing(DELTA, PRINTED_FIRST),
    "races as printed": printed(DELTA),
}
LOOKS = 5  # of F-1 in a sweep


@dataclass(frozen=True, slots=True)
class Scale:
    """``names``: mentions and authors of every name."""

    names: tuple[tuple[int, int], ...]
    sweeps: int
    runs: int


FULL = Scale(((700, 10), (200, 8), (100, 6)), 5, 3)
QUICK = Scale(((120, 4), (30, 3)), 4, 2)


def run(
    name: str,
    quick: bool,
    data: Path | None,  # noqa: ARG001 - of every reproduction
    scale: Scale | None = None,
) -> dict[str, Any]:
    """Print and return what the ways read and how well they cluster.

    In full it takes about three minutes of one core; ``quick``: 150 mentions, seconds.
    """
    scale = scale or (QUICK if quick else FULL)
    names = [make(size, authors, (SEED, place)) for place, (size, authors) in enumerate(scale.names)]
    found = {way: sample_all(names, way, scale) for way in WAYS}
    ends, curves = [*totals(found)], [*means(found)]
    for rows in (curves, ends):
        print(table(rows), end="\n\n")
    if can_draw():
        print(f"figure: {draw(curves, Path(f'{name}.png'))}")
    return record(name, [*ends, *curves], seed=SEED)


def sample_all(names: Sequence[Mentions], way: str, scale: Scale) -> list[Run]:
    """All runs of one way; a run has the same random numbers in every way."""
    every = sum(len(one.authors) for one in names) // LOOKS
    return [
        sample(names, WAYS[way], sweeps=scale.sweeps, every=every, seed=seed)
        for seed in progress(range(scale.runs), way)
    ]


def totals(found: Mapping[str, Sequence[Run]]) -> Iterator[dict[str, Any]]:
    """One row a way. ``read``: over what an exact draw reads, in all and in the last sweep."""
    for way, runs in found.items():
        last = [run.reads[-1] - run.reads[-1 - LOOKS] for run in runs]
        full = [run.everything[-1] - run.everything[-1 - LOOKS] for run in runs]
        scores = [run.scores[-1] for run in runs]
        yield {
            "way": way,
            "read": float(sum(run.reads[-1] for run in runs) / sum(run.everything[-1] for run in runs)),
            "last sweep": float(sum(last) / sum(full)),
            "wrong": None if way == "exact" else float(np.mean([run.wrong for run in runs])),
            "F-1": float(np.mean(scores)),
            "sd": float(np.std(scores, ddof=1)),
            "fewest clusters": min(run.candidates[0] for run in runs),
            "most clusters": max(run.candidates[1] for run in runs),
            "largest cluster": max(run.largest for run in runs),
        }


def means(found: Mapping[str, Sequence[Run]]) -> Iterator[dict[str, Any]]:
    """One row a way and look: means over the runs."""
    for way, runs in found.items():
        for look, updates in enumerate(runs[0].updates):
            yield {
                "way": way,
                "updates": int(updates),
                "reads": float(np.mean([run.reads[look] for run in runs])),
                "F-1": float(np.mean([run.scores[look] for run in runs])),
            }


def draw(curves: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Draw Figure 3: F-1 against factors read, and against updates."""
    with figure(path, columns=2) as (by_reads, by_updates):
        for place, way in enumerate(WAYS):
            some, line = [row for row in curves if row["way"] == way], "-" if way == "exact" else "--"
            scores = [row["F-1"] for row in some]
            by_reads.plot([row["reads"] for row in some], scores, line, color=f"C{place}", label=way)
            by_updates.plot([row["updates"] for row in some], scores, line, color=f"C{place}", label=way)
        by_reads.set(title="(a)", xlabel="factors read", ylabel="B^3 F-1")
        by_updates.set(title="(b)", xlabel="updates")
        by_reads.legend(fontsize=7)
    return path
