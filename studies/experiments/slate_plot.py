"""Figure 3 of the slates: `python -m studies.experiments.slate_plot rows.json chart.svg`.

The rows are those that `shortlist reproduce slates-figures --json` writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.experiments.plots import figure

COLOURS = {"exhaustive": "tab:blue", "sa_foa": "tab:red", "icb": "tab:green", "saqm": "tab:purple"}


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Draw samples until the stop by gap; methods that were given up at some gap are left out."""
    with figure(path) as (panel,):
        for row in rows:
            gaps = {float(name.removeprefix("gap ")): row[name] for name in row if name.startswith("gap ")}
            if row["figure"] == 3 and None not in gaps.values():
                style = "dashed" if row["bound"] == "paper" else "solid"
                label = row["method"] + " paper" * (row["bound"] == "paper")
                colour = COLOURS[row["method"]]
                panel.plot(list(gaps), list(gaps.values()), color=colour, linestyle=style, label=label)
        panel.set(yscale="log", xlabel="gap between the k-th and the next arm")
        panel.set_ylabel("totals until the stop (mean)")
        panel.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return path


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text())["rows"], Path(sys.argv[2]))
