"""Checks that the Helm chart and the Kustomize sets describe the same objects.

    chart.py CHART-RENDERED KUSTOMIZE-RENDERED...

What differs on purpose is left out: labels and hooks of Helm's, checkov's skips, the namespace, and how a new ConfigMap restarts
pods (a checksum here, a suffix of its name there).
"""

import json
import pathlib
import re
import sys

import yaml

LEFT_OUT = re.compile(r"^(app\.kubernetes\.io/managed-by|helm\.sh/.*|checkov\.io/.*|checksum/config)$")
SUFFIX = re.compile(r"^(wakeq|cloud-sql)-[a-z0-9]{10}$")


def plain(value):
    """Without what differs on purpose, and with names without suffixes."""
    if isinstance(value, dict):
        inner = {key: plain(item) for key, item in value.items() if not LEFT_OUT.match(key) and key != "namespace"}
        return {key: item for key, item in inner.items() if not (key in {"annotations", "labels"} and item == {})}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, str) and (found := SUFFIX.match(value)):
        return found[1]
    return value


def connection_name(value, name):
    """Cloud SQL's proxy reads the name from a ConfigMap there, and has it as an argument here."""
    if isinstance(value, dict):
        if value.get("name") == "cloud-sql-proxy" and "env" in value:
            value = {key: item for key, item in value.items() if key != "env"}
        return {key: connection_name(item, name) for key, item in value.items()}
    if isinstance(value, list):
        return [connection_name(item, name) for item in value]
    return name if value == "$(INSTANCE_CONNECTION_NAME)" else value


def objects(path):
    found = {}
    for each in yaml.safe_load_all(pathlib.Path(path).read_text()):
        if each:
            found[(each["kind"], plain(each["metadata"]["name"]))] = plain(each)
    return found


def differences(chart, other, where=""):
    if isinstance(chart, dict) and isinstance(other, dict):
        for key in sorted(chart.keys() | other.keys(), key=str):
            yield from differences(chart.get(key), other.get(key), f"{where}.{key}")
    elif chart != other:
        yield f"{where}: {json.dumps(chart)} in the chart, {json.dumps(other)} with Kustomize"


def main(chart, *sets):
    ours, theirs = objects(chart), {}
    for path in sets:
        theirs |= objects(path)
    theirs.pop(("Namespace", "wakeq"), None)
    names = theirs.pop(("ConfigMap", "cloud-sql"), {"data": {}})["data"]
    theirs = connection_name(theirs, names.get("connection-name"))
    found = []
    for kind, name in sorted(ours.keys() | theirs.keys()):
        found += differences(ours.get((kind, name)), theirs.get((kind, name)), f"{kind} {name}")
    for each in found:
        print(each)
    print(f"{len(ours)} objects of the chart were compared")
    sys.exit(bool(found or not ours))


if __name__ == "__main__":
    main(*sys.argv[1:])
