"""Long computations and bounded memory.

A call never computes for more than some milliseconds in the event loop: ``await LongWork(...).run(function)``
does so in one of few threads, and refuses what would wait too long. ``REQUESTS`` is that of all calls, for
what takes some tens of milliseconds. A ``BoundedCache`` drops what was used least recently.
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
