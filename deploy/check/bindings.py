"""Generates `google.json`: the schemas of the resources in use, read from the last published CDKTF bindings of the provider.

    npm install --ignore-scripts --legacy-peer-deps @cdktf/provider-google@16.12.1
    bindings.py node_modules/@cdktf/provider-google/lib google_pubsub_topic … > google.json

Run it only when the modules use another resource: the result is in the tree.
"""

import json
import pathlib
import re
import sys

TYPES = {
    "string": "string",
    "number": "number",
    "boolean": "bool",
    "any": "dynamic",
    "stringList": ["list", "string"],
    "numberList": ["list", "number"],
    "stringMap": ["map", "string"],
    "numberMap": ["map", "number"],
    "booleanMap": ["map", "bool"],
}
GETTERS = {"String": "string", "Number": "number", "Boolean": "bool", "List": ["list", "string"]}
ARGUMENT = re.compile(
    r'\n\s+(\w+): \{\n\s+value: ([^\n]*),\n\s+isBlock: (true|false),\n\s+type: "(\w+)",\n\s+storageClassType: "(\w+)"'
)


def braces(text, start):
    """The text from the first brace after `start` to the one that closes it."""
    depth, first = 0, text.index("{", start)
    for end in range(first, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[first : end + 1]
    sys.exit("a brace is not closed")


def camel(name):
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def wanted(types, interface):
    """For each argument of an interface, whether it is required, and its type."""
    start = re.search(rf"export interface {interface}(?: extends [^{{]*)? \{{", types).start()
    found = re.findall(r"readonly (\w+)(\??): ([^;\n]*)", braces(types, start))
    return {name.lower(): (optional != "?", type_) for name, optional, type_ in found}


def block(code, types, interface, body):
    arguments, result = wanted(types, interface), {"attributes": {}, "blocks": {}}
    for name, value, is_block, kind, storage in ARGUMENT.findall(body):
        required, type_ = arguments[name.replace("_", "")]
        if is_block == "false":
            stored = TYPES[storage]
            stored = ["set", stored[1]] if kind == "set" else stored
            result["attributes"][name] = {"type": stored, "required": required}
            continue
        function = re.search(r"(\w+)ToHclTerraform\b", value.replace("cdktf.listMapperHcl(", "")).group(1)
        start = code.index(f"function {function}ToHclTerraform(struct)")
        child = block(code, types, function[:1].upper() + function[1:], braces(code, start))
        child["min"], child["max"] = int(required), 0 if "[]" in type_ else 1
        child["nesting"] = "single" if name == "timeouts" else ("set" if kind == "set" else "list")
        result["blocks"][name] = child
    return result


def resource(library, name):
    folder = library / name.removeprefix("google_").replace("_", "-")
    code, types = (folder / "index.js").read_text(), (folder / "index.d.ts").read_text()
    config = re.search(r"export interface (\w+Config) extends", types).group(1)
    result = block(code, types, config, braces(code, code.index("synthesizeHclAttributes")))
    own = code[code.index("extends cdktf.TerraformResource") :]
    for name_, _computed in re.findall(r"// (\w+) - computed: (true|false), optional: false, required: false", own):
        getter = re.search(rf"get {camel(name_)}\(\) \{{\n\s+return this\.get(\w+?)Attribute", own)
        type_ = GETTERS.get(getter.group(1), "dynamic") if getter else "dynamic"
        fixed = {"type": type_, "required": False, "computed": True, "fixed": True}
        result["attributes"].setdefault(name_, fixed)
    result["attributes"].get("id", {})["computed"] = True
    return result


library = pathlib.Path(sys.argv[1])
resources = {name: resource(library, name) for name in sys.argv[2:]}
json.dump(resources, sys.stdout, separators=(",", ":"), sort_keys=True)
