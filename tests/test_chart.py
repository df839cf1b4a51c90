"""The Helm chart: rendered by Helm's own engine, held to Kubernetes' schemas and to the service itself.

What needs the extra `chart` is skipped by name without it; the rest reads the files of the chart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.api.api_keys import new_key
from app.platform.metrics import Metrics
from app.platform.settings import Settings
from openapi_document import openapi_document
from server import cli
from service_process import ShortlistProcess, serving
from shortlist_campaigns.campaign_settings import CampaignSettings
from store_clients import connect_sync, flush_sync

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy/helm/shortlist"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
(RULE,) = yaml.safe_load((CHART / "adapter-rules.yaml").read_text())["rules"]["custom"]
needs_helm = pytest.mark.skipif(
    find_spec("helm_python") is None or find_spec("kubernetes_validate") is None,
    reason="the extra `chart` is not installed",
)
OLDEST, NEWEST = "1.25", "1.37"

POD_IP = "10.1.2.3"

KEY, ENTRY = new_key("me", ["admin"])
PLAIN = {"redisUrl": "redis://store:6379", "apiKeys": [ENTRY]}
SETTINGS = {
    "hosts": "shop.example",
    "token_ttl_s": 2_000_000,
    "search_cache_mb": 64,
    "access_log": True,
    "log_level": "debug",
}
VALUES: Mapping[str, dict[str, Any]] = {
    "plain": PLAIN,
    "a secret that is there": {"existingSecret": "mine"},
    "settings": {**PLAIN, "settings": SETTINGS, "env": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318"}},
    "no workers": {**PLAIN, "worker": {"replicas": 0}, "maxUnavailable": "50%"},
    "everything": {
        **PLAIN,
        "milvusUri": "http://milvus:19530",
        "apiKeys": [ENTRY, new_key("prometheus", ["read"])[1]],
        "image": {"repository": "registry.example/shortlist", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 40, "choicesPerCore": 1_500_000},
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "keySecret": {"name": "read-key"},
        },
        "alerts": {"enabled": True, "labels": {"release": "prometheus"}},
        "service": {"type": "LoadBalancer", "port": 80, "annotations": {"example/internal": "true"}},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "64m"},
            "hosts": ["shop.example", "*.shop.example"],
            "tls": [{"secretName": "shop-tls", "hosts": ["shop.example"]}],
        },
        "serviceAccount": {"create": True, "annotations": {"example/role": "shop"}},
        "podAnnotations": {"example/team": "shop"},
        "priorityClassName": "serves-people",
        "extraVolumes": [{"name": "authority", "configMap": {"name": "our-authority"}}],
        "extraVolumeMounts": [{"name": "authority", "mountPath": "/etc/authority", "readOnly": True}],
        "env": {"SSL_CERT_FILE": "/etc/authority/ca.crt"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "only", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
    },
}

Manifests = dict[tuple[str, str], dict[str, Any]]
"""By kind and name."""


def render(values: dict[str, Any], name: str = "shop") -> Manifests:
    import helm_python  # noqa: PLC0415 - an extra

    with helm_python.Chart.load(CHART) as chart:
        rendered = chart.render(values, name=name, namespace="ns")
    texts = [text for path, text in rendered.items() if path.endswith(".yaml")]
    found = [each for text in texts for each in yaml.safe_load_all(text) if each]
    by_name = {(each["kind"], each["metadata"]["name"]): each for each in found}
    assert len(by_name) == len(found)
    return by_name


def pods_of(manifests: Manifests) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name of the deployment, template of its pods)."""
    for (kind, name), each in manifests.items():
        if kind == "Deployment":
            yield name, each["spec"]["template"]


def container_of(template: dict[str, Any]) -> dict[str, Any]:
    (container,) = template["spec"]["containers"]
    return dict(container)


def environment_of(container: dict[str, Any], manifests: Manifests) -> dict[str, str]:
    """The variables, with those that come from a secret of the chart."""
    found: dict[str, str] = {}
    for each in container["env"]:
        if "value" in each:  # which may name variables before it
            found[each["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], each["value"])
        elif "fieldRef" in each["valueFrom"]:
            assert each["valueFrom"]["fieldRef"] == {"fieldPath": "status.podIP"}
            found[each["name"]] = POD_IP
        else:
            of = each["valueFrom"]["secretKeyRef"]
            secret = manifests.get(("Secret", of["name"]), {"stringData": {of["key"]: "redis://theirs:6379"}})
            found[each["name"]] = secret["stringData"][of["key"]]
    return found


@needs_helm
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", VALUES)
def test_kubernetes_takes_what_is_rendered(name: str, version: str) -> None:
    """But for the two kinds that are the operator's of Prometheus, and not Kubernetes' own."""
    import kubernetes_validate  # noqa: PLC0415 - an extra

    for (kind, _), manifest in render(VALUES[name]).items():
        if kind not in {"ServiceMonitor", "PrometheusRule"}:
            kubernetes_validate.validate(manifest, version, strict=True)


@needs_helm
@pytest.mark.parametrize("name", VALUES)
def test_commands_and_settings_of_the_pods_exist(name: str) -> None:
    """What the variables say is read by the settings themselves, and is what was asked for."""
    manifests = render(VALUES[name])
    commands = []
    for _, template in pods_of(manifests):
        container = container_of(template)
        commands.append(container["args"])
        cli.command_parser().parse_args(container["args"])
        variables = environment_of(container, manifests)
        ours = {key.removeprefix("SHORTLIST_").lower(): variables[key] for key in variables}
        ours = {key: value for key, value in ours.items() if not key.startswith(("otel_", "pod_", "ssl_"))}
        assert ours.keys() <= Settings.model_fields.keys() | CampaignSettings.model_fields.keys()
        settings = Settings(host="0.0.0.0", **{"api_keys_file": "/etc/shortlist/api-keys", **ours})
        settings.check()
        assert settings.redis_url is not None
        wanted = dict(VALUES[name].get("settings", {}))
        if hosts := wanted.pop("hosts", None):
            assert settings.host_names == [
                hosts, POD_IP, "shop-shortlist", "shop-shortlist.ns", "shop-shortlist.ns.svc",
                "shop-shortlist.ns.svc.cluster.local",
            ]  # fmt: skip
        assert {key: getattr(settings, key) for key in wanted} == wanted
    workers = VALUES[name].get("worker", {}).get("replicas", 2)
    assert commands == ([["serve", "--no-worker"], ["worker"]] if workers else [["serve"]])


@needs_helm
@pytest.mark.parametrize("name", VALUES)
def test_every_pod_is_confined(name: str) -> None:
    user = int(re.findall(r"^USER (\d+):", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0])
    for _, template in pods_of(render(VALUES[name])):
        pod, container = template["spec"], container_of(template)
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == user
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not pod["automountServiceAccountToken"]
        assert not pod["enableServiceLinks"], "SHORTLIST_PORT would be an address"
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]
        volumes = {each["name"]: each for each in pod["volumes"]}
        mounts = {each["mountPath"]: volumes[each["name"]] for each in container["volumeMounts"]}
        assert {path for path in mounts if "emptyDir" in mounts[path]} == {"/data", "/tmp"}


@needs_helm
@pytest.mark.parametrize("release", ["shop", "shortlist", "r" * 53])
def test_everything_selects_and_names_what_is_there(release: str) -> None:
    manifests = render(VALUES["everything"], name=release)
    assert all(len(name) <= 63 for _, name in manifests)
    kinds = [kind for kind, _ in manifests]
    twice = ["Deployment", "PodDisruptionBudget"]
    others = ("HorizontalPodAutoscaler", "Ingress", "PrometheusRule", "Secret", "Service", "ServiceAccount")
    assert sorted(kinds) == sorted([*twice, *twice, *others, "ServiceMonitor"])
    (rules,) = (each for (kind, _), each in manifests.items() if kind == "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())
    assert rules["metadata"]["labels"]["release"] == "prometheus"
    pods = {name: template["metadata"]["labels"] for name, template in pods_of(manifests)}
    of: dict[str, list[set[str]]] = {kind: [] for kind in kinds}
    for (kind, name), each in manifests.items():
        selector = each.get("spec", {}).get("selector", {})
        wanted = selector.get("matchLabels", selector).items()
        found = {pod for pod, labels in pods.items() if wanted <= labels.items()} if wanted else set()
        of[kind].append(found)
        if kind == "Deployment":
            assert found == {name}
    (service,), (monitor,), (web, worker) = of["Service"], of["ServiceMonitor"], of["PodDisruptionBudget"]
    assert len(web) == len(worker) == 1
    assert service == monitor == web != worker
    scaled = manifests["HorizontalPodAutoscaler", *service]["spec"]
    assert scaled["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": min(web)}
    assert "replicas" not in manifests["Deployment", *web]["spec"], "the autoscaler sets them"
    labels = manifests["Service", *service]["metadata"]["labels"]
    asked = manifests["ServiceMonitor", *monitor]["spec"]
    assert asked["selector"]["matchLabels"].items() <= labels.items()
    assert asked["endpoints"][0]["path"] in openapi_document()["paths"]


@needs_helm
def test_a_pod_serves_is_probed_and_tells_prometheus_what_the_autoscaler_asks_for(
    store_url: str, tmp_path: Path
) -> None:
    """The processes of the pods without their containers, by the arguments and variables of the manifests."""
    with connect_sync(store_url) as client:  # an earlier test may have left one of fewer partitions
        flush_sync(client)
    key, entry = new_key("prometheus", ["read"])
    manifests = render({**PLAIN, "redisUrl": "redis://x:1", "apiKeys": [ENTRY, entry]})
    web, worker = (container_of(template) for _, template in pods_of(manifests))
    keys = tmp_path / "api-keys"
    keys.write_text(manifests["Secret", "shop-shortlist"]["stringData"]["api-keys"])
    here = {"SHORTLIST_API_KEYS_FILE": str(keys), "SHORTLIST_REDIS_URL": store_url}
    variables = {name: here.get(name, value) for name, value in environment_of(web, manifests).items()}
    worker_variables = {"SHORTLIST_REDIS_URL": store_url, "SHORTLIST_DATA_DIR": str(tmp_path / "worker")}
    _, *arguments = web["args"]
    apart = ShortlistProcess(tmp_path / "logs", worker["args"], worker_variables)
    try:
        with serving(tmp_path, *arguments, **variables) as service:
            admin = {"Authorization": f"Bearer {KEY}"}
            with httpx.Client(base_url=service.url, headers=admin, timeout=60) as http:
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    assert httpx.get(f"{service.url}{web[probe]['httpGet']['path']}").status_code == 200
                http.put("/v1/catalogues/chart", json={"dim": 1}).raise_for_status()
                arms = {"arms": [{"id": "a", "features": [1.0]}]}
                http.put("/v1/catalogues/chart/arms", json=arms).raise_for_status()
                body = {"catalogue": "chart", "policy": "sub_ts", "scope": "per_key"}
                http.put("/v1/bandits/chart", json=body).raise_for_status()
                choice = http.post("/v1/bandits/chart/choose", json={"key": "ann"}).raise_for_status().json()
                reward = {"rewards": [{"decision": choice["decision"], "value": 1}]}
                http.post("/v1/rewards?wait=applied", json=reward).raise_for_status()
                assert httpx.get(f"{service.url}/metrics").status_code == 401
                shown = httpx.get(f"{service.url}/metrics", headers={"Authorization": f"Bearer {key}"}).text
                http.delete("/v1/bandits/chart").raise_for_status()
                http.delete("/v1/catalogues/chart").raise_for_status()
    finally:
        apart.kill()
    choices = [
        float(value)
        for route, value in re.findall(
            r'^shortlist_requests_total\{.*route="([^"]+)".*\} (\S+)$', shown, re.MULTILINE
        )
        if re.fullmatch(route_pattern(), route)
    ]
    assert choices == [1.0]


def route_pattern() -> str:
    (pattern,) = re.findall(r'route=~"([^"]+)"', RULE["metricsQuery"])
    return str(pattern)


def test_the_rule_of_the_adapter_asks_for_a_metric_and_for_routes_that_exist() -> None:
    asked = set(re.findall(r"shortlist_\w+", RULE["seriesQuery"] + RULE["metricsQuery"]))
    labels = {name: labels for name, _, _, labels, _ in Metrics().table()}
    assert asked == {"shortlist_requests_total"}
    assert "route" in labels["shortlist_requests_total"].split(", ")
    paths = {path for path in openapi_document()["paths"] if re.fullmatch(route_pattern(), path)}
    choices = {"/v1/bandits/{bandit}/choose", "/v1/bandits/{bandit}/choose/batch", "/v1/choose/batch"}
    assert paths == choices


BAD: Mapping[str, tuple[dict[str, Any], str]] = {
    "no store": ({"apiKeys": [ENTRY]}, "'/redisUrl': '' does not match"),
    "no key": ({"redisUrl": "redis://x"}, "'/apiKeys': minItems"),
    "a key in place of its entry": ({**PLAIN, "apiKeys": [KEY]}, "'/apiKeys/0': .* does not match"),
    "two secrets": ({**PLAIN, "existingSecret": "mine"}, "'/redisUrl': maxLength"),
    "an unknown value": ({**PLAIN, "replicas": 2}, "additional properties 'replicas' not allowed"),
    "a setting of the chart's own": ({**PLAIN, "settings": {"port": 1}}, "additional properties 'port'"),
    "a setting as a variable": (
        {**PLAIN, "env": {"SHORTLIST_PORT": "1"}},
        "invalid propertyName 'SHORTLIST_PORT'",
    ),
    "not a quantity": (
        {**PLAIN, "web": {"resources": {"limits": {"memory": "much"}}}},
        "'/web/resources/limits/memory': 'much' does not match",
    ),
    "more at least than at most": (
        {**PLAIN, "autoscaling": {"enabled": True, "minReplicas": 9, "maxReplicas": 8}},
        "minReplicas is above maxReplicas",
    ),
    "a monitor without a key": (
        {**PLAIN, "serviceMonitor": {"enabled": True}},
        "'/serviceMonitor/keySecret/name': minLength",
    ),
    "a volume of the chart's own": (
        {**PLAIN, "extraVolumes": [{"name": "data", "emptyDir": {}}]},
        "'/extraVolumes/0/name': 'not' failed",
    ),
}


@needs_helm
@pytest.mark.parametrize("case", BAD)
def test_bad_values_are_refused_by_name(case: str) -> None:
    import helm_python  # noqa: PLC0415 - an extra

    values, words = BAD[case]
    with pytest.raises(helm_python.HelmError, match=words):
        render(values)


def rule_of(settings: dict[str, Any]) -> dict[str, Any]:
    """What a JSON schema says of a setting, but for its name and meaning."""
    told = {"title", "default", "description", "when"}
    given = next((each for each in settings.get("anyOf", []) if each["type"] != "null"), settings)
    return {key: value for key, value in given.items() if key not in told}


def test_settings_of_the_values_are_those_of_the_service() -> None:
    """All but those that the chart itself decides; with those of the plug-ins of the image."""
    own = {"host", "port", "data_dir", "redis_url", "milvus_uri", "api_keys", "api_keys_file", "worker"}
    rules = {name: rule_of(rule) for name, rule in Settings.model_json_schema()["properties"].items()}
    assert own <= rules.keys()
    expected = {name: rule for name, rule in rules.items() if name not in own}
    of_campaigns = CampaignSettings.model_json_schema()["properties"]
    expected |= {name: rule_of(rule) for name, rule in of_campaigns.items()}
    assert SCHEMA["properties"]["settings"]["properties"] == expected, json.dumps(expected, indent=2)


def test_every_value_has_a_rule_and_every_object_is_closed() -> None:
    def check(values: Any, schema: dict[str, Any], place: str) -> None:
        if "properties" not in schema:
            return
        assert not schema["additionalProperties"], place
        assert set(values) <= set(schema["properties"]), place
        for name in values:
            check(values[name], schema["properties"][name], f"{place}.{name}")

    check(yaml.safe_load((CHART / "values.yaml").read_text()), SCHEMA, "")
