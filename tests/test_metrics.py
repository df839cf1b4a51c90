"""The table of metrics, its document, the dashboard and the alerts say the same."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from app.platform.metrics import Metrics
from shortlist_embeddings.following import TAKEN
from shortlist_embeddings.new_embeddings import UPLOADED
from shortlist_evaluation.evaluations import EVALUATED
from shortlist_service.metrics import Counter, Gauge

ROOT = Path(__file__).parents[1]
ALERTS = ROOT / "deploy/prometheus/alerts.yml"
STANDARD = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"}


def all_metrics() -> Metrics:
    """Those of the service, and of the plug-ins that come with it."""
    metrics = Metrics()
    metrics.of_plugin(Counter, *TAKEN)
    metrics.of_plugin(Gauge, *UPLOADED)
    metrics.of_plugin(Counter, *EVALUATED)
    return metrics


def shown_names() -> set[str]:
    """Every name that a query may use, the series of histograms included."""
    names = set(STANDARD)
    for name, kind, *_ in all_metrics().table():
        names |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return names


def queries(panel: dict) -> list[str]:
    return [target["expr"] for target in panel.get("targets", [])]


def test_every_metric_is_documented_as_it_is():
    rows = ["| name | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
    rows += [
        f"| `{name}` | {kind} | {unit} | {labels} | {text} |"
        for name, kind, unit, labels, text in all_metrics().table()
    ]
    assert "\n".join(rows) in (ROOT / "docs/metrics.md").read_text(), "\n".join(rows)


@pytest.mark.rest
def test_a_metric_of_a_plugin_is_the_same_one_each_time():
    metrics = all_metrics()
    assert metrics.of_plugin(Counter, *TAKEN) is metrics.of_plugin(Counter, *TAKEN)
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.of_plugin(Counter, "shortlist_rewards", "one of ours")


@pytest.mark.rest
def test_the_dashboard_asks_for_metrics_that_exist_and_shows_all_of_ours():
    dashboard = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    asked = {
        word
        for panel in dashboard["panels"]
        for query in queries(panel)
        for word in re.findall(r"\b(?:shortlist|process)_\w+|\bup\b", query)
    }
    assert asked <= shown_names()
    for name, kind, *_ in all_metrics().table():
        assert name in asked or (kind == "histogram" and f"{name}_bucket" in asked), name


@pytest.mark.rest
def test_ten_alerts_ask_for_metrics_that_exist_and_say_what_to_do():
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    rules = {rule["alert"]: rule for rule in group["rules"]}
    assert len(rules) == len(group["rules"]) == 10
    labels = {name: set(labels.split(", ")) for name, _, _, labels, _ in all_metrics().table()}
    ours = {"job", "instance", "process"}
    page = (ROOT / "docs/operations.md").read_text()
    for name, rule in rules.items():
        asked = re.findall(r"\b(shortlist_\w+|up)\b(?:\{([^}]*(?:\[[^]]*\][^}]*)*)\})?", rule["expr"])
        assert asked, name
        for metric, selectors in asked:
            assert metric in shown_names(), name
            used = set(re.findall(r"(\w+)(?:=~|!=|=)", selectors))
            assert used <= labels.get(metric, set()) | ours, name
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert re.fullmatch(r"[0-9]+m", rule["for"])
        assert rule["annotations"]["summary"]
        assert f"| `{name}` |" in page


@pytest.mark.rest
@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool is installed")
def test_promtool_reads_the_alerts():
    subprocess.run(["promtool", "check", "rules", ALERTS], check=True, capture_output=True)
