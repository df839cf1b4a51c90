"""`shortlist reproduce table1-sampling`: B_Normal beside the printed table, and Figure 4.

Both readings of Equation 5 are computed: the print's table is the two-sided one
(docs/papers/racing-samplers.md).

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Table 1
and Figure 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shortlist.sampling.b_normal import b_normal, crossing
from studies.experiments.plots import can_draw, figure
from studies.measurement import report

SHARES = (5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2)
# delta: the printed B of every share
PRINTED = {
    1e-06: (5.27250, 5.25978, 5.21523, 5.19704, 5.15638, 5.12982),
    3e-06: (5.06504, 5.05294, 5.00570, 4.98839, 4.94490, 4.91964),
    5e-06: (4.96669, 4.95260, 4.90571, 4.88735, 4.84311, 4.81818),
    7e-06: (4.89969, 4.88715, 4.83793, 4.82079, 4.77535, 4.75037),
    9e-06: (4.85078, 4.83613, 4.78840, 4.76941, 4.72447, 4.69877),
    1e-05: (4.82952, 4.81667, 4.76734, 4.74894, 4.70377, 4.67696),
    3e-05: (4.60397, 4.58943, 4.53827, 4.51911, 4.47119, 4.44485),
    5e-05: (4.49660, 4.48108, 4.42961, 4.40734, 4.36137, 4.33158),
    7e-05: (4.42331, 4.40694, 4.35512, 4.33353, 4.28573, 4.25692),
    9e-05: (4.36853, 4.35265, 4.29963, 4.27682, 4.22961, 4.19891),
    0.0001: (4.34343, 4.32914, 4.27380, 4.25455, 4.20386, 4.17608),
    0.0003: (4.09380, 4.07655, 4.02027, 3.99632, 3.94601, 3.91438),
    0.0005: (3.97189, 3.95539, 3.89641, 3.87263, 3.82038, 3.78605),
    0.0007: (3.88945, 3.87195, 3.81223, 3.78698, 3.73467, 3.70026),
    0.0009: (3.82665, 3.80955, 3.74833, 3.72365, 3.66977, 3.63422),
    0.001: (3.79932, 3.78066, 3.72003, 3.69596, 3.64066, 3.60812),
    0.003: (3.51044, 3.49128, 3.42498, 3.39721, 3.34023, 3.30253),
    0.005: (3.36685, 3.34814, 3.27812, 3.25096, 3.19048, 3.15168),
    0.007: (3.26922, 3.24913, 3.17763, 3.14844, 3.08769, 3.04691),
    0.009: (3.19383, 3.17396, 3.10034, 3.07142, 3.00871, 2.96758),
    0.01: (3.16117, 3.13913, 3.06612, 3.03755, 2.97349, 2.93484),
    0.03: (2.80261, 2.77885, 2.69625, 2.66350, 2.59450, 2.55058),
    0.05: (2.61646, 2.59217, 2.50369, 2.46819, 2.39672, 2.34862),
    0.07: (2.48285, 2.45761, 2.36449, 2.33100, 2.25369, 2.20744),
    0.09: (2.37768, 2.35127, 2.25533, 2.22026, 2.14145, 2.09317),
    0.1: (2.33161, 2.30704, 2.20851, 2.17274, 2.09292, 2.04351),
    0.13: (2.21073, 2.18499, 2.08270, 2.04536, 1.96346, 1.91214),
    0.16: (2.10639, 2.08030, 1.97430, 1.93665, 1.85177, 1.80027),
    0.19: (2.01355, 1.98592, 1.87702, 1.83878, 1.75267, 1.69949),
    0.22: (1.92898, 1.90035, 1.78969, 1.74854, 1.66259, 1.60660),
    0.25: (1.84734, 1.81893, 1.70515, 1.66472, 1.57552, 1.52056),
    0.28: (1.76920, 1.73957, 1.62421, 1.58220, 1.49310, 1.43584),
    0.31: (1.69110, 1.66145, 1.54360, 1.50171, 1.41066, 1.35354),
    0.34: (1.61302, 1.58274, 1.46319, 1.42011, 1.32819, 1.27094),
    0.37: (1.52953, 1.49919, 1.37749, 1.33482, 1.24221, 1.18303),
    0.4: (1.44411, 1.41048, 1.28960, 1.24393, 1.15002, 1.09455),
    0.43: (1.33819, 1.30896, 1.18163, 1.14025, 1.04396, 0.98381),
    0.46: (1.20662, 1.17447, 1.05191, 1.00383, 0.91939, 0.85273),
    0.49: (0.97014, 0.94399, 0.81030, 0.76485, 0.69587, 0.61783),
}


def run(name: str, quick: bool, data: Path | None) -> dict[str, Any]:  # noqa: ARG001 - of every reproduction
    """Print and return one row for each entry of the table; every fifth delta if ``quick``."""
    deltas = list(PRINTED)[:: 5 if quick else 1]
    rows = [row(delta, share) for delta in deltas for share in SHARES]
    if can_draw():
        print(f"figure: {draw(rows, Path('figure4-sampling.png'))}")
    return report(name, rows, seed=0)


def row(delta: float, share: float) -> dict[str, Any]:
    """One entry; ``crossed`` is the probability of Equation 5 with the printed B."""
    printed = PRINTED[delta][SHARES.index(share)]
    both = b_normal(delta, share, two_sided=True)
    return {
        "delta": delta,
        "share": share,
        "printed": printed,
        "two_sided": both,
        "one_sided": b_normal(delta, share),
        "difference": both - printed,
        "crossed": crossing(printed, share),
    }


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Draw Figure 4: B against delta, a curve for every share; dots are the printed table."""
    with figure(path) as (axes,):
        for number, share in enumerate(SHARES):
            some = [row for row in rows if row["share"] == share]
            deltas, colour = [row["delta"] for row in some], f"C{number}"
            axes.plot(deltas, [row["one_sided"] for row in some], color=colour, label=f"{share:g}")
            axes.plot(deltas, [row["printed"] for row in some], ".", color=colour, markersize=4)
        axes.set(xscale="log", xlabel="delta", ylabel="B_Normal", title="lines: Equation 5; dots: the print")
        axes.legend(title="first batch / N", fontsize=7)
    return path
