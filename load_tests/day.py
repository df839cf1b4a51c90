"""A day in a minute: a quiet morning, a peak, a burst, a quiet night. In place of `-u`, `-r` and `-t`:

locust -f load_tests/locustfile.py,load_tests/day.py --headless --host http://127.0.0.1:8080
"""

from __future__ import annotations

from locust import LoadTestShape

# Until which second, how many users, and how many of them come a second.
HOURS = ((15, 5, 5), (35, 40, 5), (45, 120, 60), (60, 5, 60))


class Day(LoadTestShape):
    """Repeats nothing: the test ends with the day."""

    def tick(self) -> tuple[int, float] | None:
        return next(((users, rate) for until, users, rate in HOURS if self.get_run_time() < until), None)
