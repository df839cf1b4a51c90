"""Metrics of a plug-in: ``GET /metrics`` shows them beside those of the service.

    from shortlist_service.metrics import Counter

    greeted = dependencies.metrics.of_plugin(Counter, "shortlist_greetings", "Greetings that were sent.")
    greeted.inc()

``RouteDependencies.metrics`` are those of the process.
"""

from prometheus_client import Counter, Gauge

from app.platform.metrics import Metrics

__all__ = ["Counter", "Gauge", "Metrics"]
