"""Checks of deploy/ that no other tool does: its names exist in the code, and its parts match each other.

    tree.py FOLDER-OF-RENDERED-MANIFESTS
"""

import ipaddress
import json
import pathlib
import re
import sys

import promql_parser
import yaml

DEPLOY = pathlib.Path(__file__).parent.parent
ROOT = DEPLOY.parent
SOURCES = [ROOT / "src", ROOT / "streams/src", ROOT / "service/src"]

# Suffixes that Prometheus adds to a name: counters, histograms, units.
ENDINGS = re.compile(r"(_total|_bucket|_count|_sum)$")
UNIT = re.compile(r"_seconds$")
SUFFIX = re.compile(r"_(seconds|bytes|ratio)$")
HISTOGRAM = re.compile(r"_(bucket|count|sum)$")

# Metrics that no panel or rule uses, each with the reason.
NOT_SHOWN = {
    "wakeq_webhooks_total": "only deployments with hooks have it, and the audit log says whose hook refused what",
}

complaints = []


def complain(where, what):
    complaints.append(f"{where}: {what}")


def names_in_code():
    """All string literals of the packages, as they are and with dots replaced as in Prometheus."""
    literals = set()
    for path in (path for folder in SOURCES for path in folder.rglob("*.rs")):
        literals |= set(re.findall(r'"([A-Za-z_][A-Za-z0-9_.]*)"', path.read_text()))
    return literals | {UNIT.sub("", literal.replace(".", "_")) for literal in literals}


def check_known(where, name, code):
    if name not in code:
        complain(where, f"{name} does not occur in the code")


def check_variables(code):
    paths = [path for path in sorted(DEPLOY.rglob("*")) if path.suffix in {".tf", ".yaml", ".hcl"}]
    for path in [*paths, ROOT / "docs/deploy.md"]:
        for name in sorted(set(re.findall(r"\bWAKEQ_[A-Z_]+\b", path.read_text()))):
            check_known(path.relative_to(ROOT), name, code)


def metrics(expression):
    """The metrics that a valid expression uses."""
    promql_parser.parse(expression)
    inside = re.sub(r'"[^"]*"|\{[^}]*\}|\b(by|on|without|ignoring) \([^)]*\)', " ", expression)
    return set(re.findall(r"\b(?:wakeq|messaging|http_server)_[a-z_]+\b", inside))


def check_expressions(code):
    rules = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())
    found = [("alerts.yaml", rule["alert"], rule["expr"]) for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((DEPLOY / "grafana/wakeq.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            found.append(("wakeq.json", panel["title"], target["expr"].replace("$__rate_interval", "5m")))
    shown = set()
    for file, title, expression in found:
        try:
            read = metrics(expression)
        except ValueError as error:
            complain(f"{file}, {title}", error)
            continue
        if not read:
            complain(f"{file}, {title}", "it uses no metric of wakeq")
        for name in read:
            check_known(f"{file}, {title}", SUFFIX.sub("", ENDINGS.sub("", name)), code)
        shown |= {HISTOGRAM.sub("", name) for name in read}
    check_shown(shown)
    return len(found)


def check_shown(shown):
    """Each documented metric is used by a panel or a rule, or is in NOT_SHOWN."""
    document = (ROOT / "docs/telemetry.md").read_text()
    told = set(re.findall(r"^\| `[a-z._]+`, `([a-z_]+)` \|", document, re.MULTILINE))
    if len(told) < 30:
        complain("docs/telemetry.md", f"its table of metrics could not be parsed: {sorted(told)}")
    for name in sorted(told - shown - NOT_SHOWN.keys()):
        complain("docs/telemetry.md", f"no panel or rule uses {name}")
    for name in sorted(NOT_SHOWN.keys() - (told - shown)):
        complain("tree.py", f"{name} is used, or is not a documented metric: remove it from NOT_SHOWN")
    for name in sorted(shown - told):
        complain("docs/telemetry.md", f"it does not document {name}")


def pods(manifests):
    """Each pod's name, labels and specification."""
    for manifest in manifests:
        if manifest["kind"] in {"Deployment", "Job"}:
            template = manifest["spec"]["template"]
            yield manifest["metadata"]["name"], template["metadata"]["labels"], template["spec"]


def check_selectors(where, manifests):
    labels = [found for _, found, _ in pods(manifests)]
    for manifest in manifests:
        spec = manifest.get("spec", {})
        selector = {
            "Service": spec.get("selector"),
            "PodDisruptionBudget": spec.get("selector", {}).get("matchLabels"),
            "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels"),
        }.get(manifest["kind"])
        if selector and not any(selector.items() <= found.items() for found in labels):
            complain(where, f"{manifest['kind']} {manifest['metadata']['name']} selects no pod")


def check_pods(where, manifests):
    health = (ROOT / "service/src/http/health.rs").read_text()
    accounts = {each["metadata"]["name"] for each in manifests if each["kind"] == "ServiceAccount"}
    maps = {each["metadata"]["name"] for each in manifests if each["kind"] == "ConfigMap"}
    for name, _, spec in pods(manifests):
        if spec["serviceAccountName"] not in accounts:
            complain(where, f"{name}: unknown account: {spec['serviceAccountName']}")
        wakeq = next(each for each in spec["containers"] if each["name"] == "wakeq")
        used = {each["configMapRef"]["name"] for each in wakeq.get("envFrom", [])}
        if used - maps:
            complain(where, f"{name}: unknown ConfigMap: {used - maps}")
        for probe in ("livenessProbe", "readinessProbe"):
            path = wakeq.get(probe, {}).get("httpGet", {}).get("path")
            if path and f'path = "{path}"' not in health:
                complain(where, f"{name}: the service has no {path}")
        values = {each["name"]: each.get("value", "") for each in wakeq["env"]}
        grace = int(values.get("WAKEQ_SHUTDOWN_GRACE", "0s").removesuffix("s"))
        if grace and spec["terminationGracePeriodSeconds"] < grace + 2:
            complain(where, f"{name}: Kubernetes would kill it before it has released its claims")


def check_proxies(where, manifests):
    for manifest in (each for each in manifests if each["kind"] == "ConfigMap"):
        proxies = manifest["data"].get("WAKEQ_TRUSTED_PROXIES", "")
        try:
            [ipaddress.ip_network(each) for each in proxies.split(",") if each]
        except ValueError as error:
            complain(where, f"WAKEQ_TRUSTED_PROXIES: {error}")


def capacity_of(deployment):
    """How many handlers one of its workers runs at a time."""
    wakeq = next(each for each in deployment["spec"]["template"]["spec"]["containers"] if each["name"] == "wakeq")
    said = next((each["value"] for each in wakeq["env"] if each["name"] == "WAKEQ_CAPACITY"), None)
    default = re.search(r"\bcapacity: (\d+),", (ROOT / "src/worker/config.rs").read_text())
    return said or default.group(1)


def check_scaling(where, manifests):
    deployments = {each["metadata"]["name"]: each for each in manifests if each["kind"] == "Deployment"}
    services = {each["metadata"]["name"] for each in manifests if each["kind"] == "Service"}
    for scaler in (each for each in manifests if each["kind"] == "ScaledObject"):
        target = deployments.get(scaler["spec"]["scaleTargetRef"]["name"])
        if target is None or "replicas" in target["spec"]:
            complain(where, "the scale target is missing, or has a fixed number of replicas")
        for trigger in scaler["spec"]["triggers"]:
            url = trigger["metadata"]["url"]
            host = re.match(r"http://([^.:/]+)[^/]*/v1/(canvases/[0-9a-f-]{36}|admin)/depth(\?|$)", url)
            if not host or host.group(1) not in services:
                complain(where, f"{url} is not the URL of a `depth` route")
            if target and trigger["metadata"]["targetValue"] != capacity_of(target):
                complain(where, f"targetValue must be the capacity of a worker, {capacity_of(target)}")


def main():
    code = names_in_code()
    check_variables(code)
    expressions = check_expressions(code)
    rendered = sorted(pathlib.Path(sys.argv[1]).glob("*.yaml"))
    for path in rendered:
        manifests = [each for each in yaml.safe_load_all(path.read_text()) if each]
        for check in (check_selectors, check_pods, check_proxies, check_scaling):
            check(path.name, manifests)
    if complaints:
        sys.exit("\n".join(map(str, complaints)))
    print(f"names, {expressions} expressions and {len(rendered)} sets of manifests fit the code and each other")


main()
