"""One-hot arms and a context of 16 numbers: a part of `shortlist bench defaults`, of tables that others made.

Files ``pendigits.csv`` (10 classes) and ``letter.csv`` (26) in the folder of ``--data``: a line of names,
then rows that end with 16 numbers and the class. Without them nothing is played. Arms are the classes, a
reward is 1 for the right one; numbers are put between 0 and 1. So D is A (1 + m) + 1 of A classes and m
numbers, and a decision says something of 2 + m of them.

Columns
    ours        the share of right arms in all rounds, without a setting; ours_error: over draws
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shortlist_client.progress import progress
from studies.bench.few_keys import Setting, World, play
from studies.bench.noise_levels import mean_and_error

SEED = 7_205
NAMES, NUMBERS = ("pendigits", "letter"), 16
ROUNDS = 2_000
OURS = Setting(intercept=True)


def rows(data: Path, draws: int, *, rounds: int = ROUNDS) -> Sequence[dict[str, Any]]:
    """A row for each file that is there, the worst first. Raises OSError, ValueError."""
    found = []
    for name in progress([name for name in NAMES if (data / f"{name}.csv").is_file()], "classes"):
        worlds = [world(data / f"{name}.csv", draw, rounds) for draw in range(draws)]
        ours = np.array([play(played, OURS, seed=draw).mean() for draw, played in enumerate(worlds)])
        row = {"world": name, "K": len(worlds[0].features), "D": worlds[0].dim + 1, "rounds": rounds}
        found.append(row | mean_and_error("ours", ours))
    return sorted(found, key=lambda row: row["ours"])


def world(path: Path, draw: int, rounds: int) -> World:
    """One key; any rows of the file, in any order. Raises OSError, ValueError: not such a file."""
    with path.open(newline="") as lines:
        table = list(csv.reader(lines))[1:]
    labels, classes = np.unique([line[-1] for line in table], return_inverse=True)
    numbers = np.array([line[-NUMBERS - 1 : -1] for line in table], dtype=np.float64)
    numbers = (numbers - numbers.min(axis=0)) / np.ptp(numbers, axis=0)
    shown = np.random.default_rng((SEED, draw)).permutation(len(table))[:rounds]
    right = np.eye(len(labels))[classes[shown]]
    return World(
        path.stem,
        np.eye(len(labels)),
        lambda _key, at: right[at],
        right.mean(axis=0),
        1,
        len(shown),
        rewards="certain",
        contexts=numbers[shown][None],
        directions=np.eye(len(labels)),
        numbers=2.0 + NUMBERS,
    )
