"""Tables 1 to 5 of the sublinear paper, as printed, and what we add: ``regret`` None is not in the print.

Source: Yang et al., "Linear Bandit Algorithms with Sublinear Time Complexity", section 7 and appendix C.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Printed:
    """One column of a printed table.

    K is the number of arms at the end in tables 1 to 3, that at every step in table 4, that at the beginning
    in table 5, as the paper counts. ``shortlist`` None: a baseline.
    """

    algorithm: str
    K: int
    shortlist: int | None
    change: int
    regret: float | None = None
    regret_sd: float = 0.0
    speedup: float | None = 1.0
    speedup_online: float | None = 1.0

    @property
    def baseline(self) -> str:
        """The algorithm that this one is compared with."""
        return {"sub_elim": "linear_elim", "sub_ts": "linear_ts"}.get(self.algorithm, self.algorithm)


TABLES = {
    "table1": (
        Printed("linear_elim", 5_000, None, 2, 3866, 195),
        Printed("exact_elim", 5_000, None, 2),
        Printed("sub_elim", 5_000, 30, 2, 3758, 190, 5.28, 5.89),
        Printed("linear_ts", 5_000, None, 2, 582, 54),
        Printed("sub_ts", 5_000, 30, 2, 605, 59, 1.55, 1.56),
        Printed("linear_elim", 100_000, None, 2, 4804, 146),
        Printed("exact_elim", 100_000, None, 2),
        Printed("sub_elim", 100_000, 30, 2, 4701, 150, 3.72, 72.76),
        Printed("linear_ts", 100_000, None, 2, 721, 92),
        Printed("sub_ts", 100_000, 30, 2, 734, 89, 8.56, 9.65),
    ),
    "table2": (
        Printed("linear_elim", 100_000, None, 2, 4803, 146),
        Printed("exact_elim", 100_000, None, 2),
        Printed("sub_elim", 100_000, 10, 2, 4691, 133, 3.74, 77.61),
        Printed("sub_elim", 100_000, 100, 2, 4837, 143, 3.69, 56.57),
        Printed("linear_ts", 100_000, None, 2, 721, 92),
        Printed("sub_ts", 100_000, 10, 2, 736, 89, 8.93, 10.12),
        Printed("sub_ts", 100_000, 100, 2, 721, 92, 7.72, 8.60),
    ),
    "table3": (
        Printed("linear_elim", 3_952, None, 2, 3847, 212),
        Printed("exact_elim", 3_952, None, 2),
        Printed("sub_elim", 3_952, 30, 2, 3795, 206, 7.00, 8.52),
        Printed("sub_elim", 3_952, 100, 2, 3806, 206, 6.12, 7.22),
        Printed("linear_ts", 3_952, None, 2, 1193, 66),
        Printed("sub_ts", 3_952, 30, 2, 1177, 66, 1.52, 1.54),
        Printed("sub_ts", 3_952, 100, 2, 1202, 68, 1.45, 1.46),
    ),
    "table4": (
        Printed("linear_ts", 10_000, None, 2, 612, 43),
        Printed("sub_ts", 10_000, 10, 2, 640, 42, 1.75, 1.77),
        Printed("sub_ts", 10_000, 30, 2, 612, 43, 1.70, 1.72),
        Printed("sub_ts", 10_000, 100, 2, 612, 43, 1.51, 1.52),
    ),
    "table5": (
        Printed("linear_elim", 10_000, None, 2, 4433, 399),
        Printed("exact_elim", 10_000, None, 2),
        Printed("sub_elim", 10_000, 30, 2, 4393, 392, 12.53, 17.01),
        Printed("linear_ts", 10_000, None, 2, 566, 52),
        Printed("sub_ts", 10_000, 30, 2, 566, 52, 2.17, 2.19),
        Printed("linear_elim", 10_000, None, 10, 4428, 224),
        Printed("exact_elim", 10_000, None, 10),
        Printed("sub_elim", 10_000, 30, 10, 4345, 244, 11.91, 15.75),
        Printed("linear_ts", 10_000, None, 10, 639, 54),
        Printed("sub_ts", 10_000, 30, 10, 638, 54, 2.25, 2.27),
        Printed("linear_elim", 10_000, None, 50, 4106, 154),
        Printed("exact_elim", 10_000, None, 50),
        Printed("sub_elim", 10_000, 30, 50, 4062, 169, 9.28, 11.43),
        Printed("linear_ts", 10_000, None, 50, 581, 45),
        Printed("sub_ts", 10_000, 30, 50, 619, 62, 2.19, 2.20),
    ),
    "table1-million": (
        Printed("linear_ts", 1_000_000, None, 2),
        Printed("sub_ts", 1_000_000, 30, 2, speedup=None, speedup_online=None),
        Printed("sub_ts", 1_000_000, 100, 2, speedup=None, speedup_online=None),
    ),
}
