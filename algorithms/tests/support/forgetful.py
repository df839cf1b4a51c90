"""A solver as Proposition 3.2 promises one: right on any fixed query with probability 1 - rate, and no more.

Which queries it fails on was drawn when it was made; an adversary who watches can find one and stay there.
"""

from __future__ import annotations

import hashlib

import numpy as np

from shortlist.mips.exact import exact
from shortlist.types import NO_ROWS, TopK


class Forgetful:
    def __init__(self, arms, seed, rate=0.1):
        self.arms = dict(enumerate(arms))
        self._seed = seed
        self._rate = rate

    def add(self, row, arm):
        self.arms[row] = arm

    def delete(self, row):
        del self.arms[row]

    def fails_on(self, query):
        digest = hashlib.blake2b(query.tobytes(), key=str(self._seed).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") / 2**64 < self._rate

    def search(self, query, k, exclude=NO_ROWS):
        if self.fails_on(np.asarray(query)) or not self.arms:
            return TopK(NO_ROWS, np.empty(0), exact=False)
        rows = np.array(sorted(set(self.arms) - set(exclude.tolist())), dtype=np.int64)
        found = exact(np.array([self.arms[row] for row in rows.tolist()]), query, k=k)
        return TopK(rows[found.rows], found.scores, exact=True)
