"""Long computations, bounded memory, and work in the background.

A call never computes for more than some milliseconds in the event loop: ``await LongWork(...).run(function)``
does so in one of few threads, and refuses what would wait too long. ``REQUESTS`` is that of all calls, for
what takes some tens of milliseconds, and ``MEASURING`` that of reports and other questions about logs. A
``BoundedCache`` drops what was used least recently. ``BackgroundWork`` among the services of routes runs as
long as the service: ``await repeat(self.step, every_s=1.0)``.
"""

from app.platform.background import BackgroundWork, Pace, repeat
from app.platform.cache import BoundedCache
from app.platform.long_work import LongWork, Slots
from app.platform.pools import MEASURING, REQUESTS

__all__ = [
    "MEASURING",
    "REQUESTS",
    "BackgroundWork",
    "BoundedCache",
    "LongWork",
    "Pace",
    "Slots",
    "repeat",
]
