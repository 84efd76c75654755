"""Lets `terraform validate` and `terraform test` run without a registry and without a cloud.

Terraform asks a provider what its resources look like; this answers from `google.json`, the resources in use as
google 6.50.0 has them (made by `bindings.py`), and for `random_password`. So names, types, what has to be given, and
all that one module says to another are checked by Terraform itself. What only Google knows is not: whether a value is
one that its service takes.

    terraform.py FOLDER-FOR-SCRATCH EXAMPLE-OR-MODULE…

It writes to the scratch folder, and nothing to the tree.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from concurrent import futures

import grpc

HERE = pathlib.Path(__file__).parent
NESTING = {"single": 1, "list": 2, "set": 3}
LIMIT_S = 120


def field(number, value):
    """A field of a protocol buffer; a number that is zero is left out."""
    if isinstance(value, int):
        return varint(number << 3) + varint(int(value)) if value else b""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def attribute(name, is_):
    required, computed = is_["required"], is_.get("computed", False)
    return b"".join([
        field(1, name),
        field(2, json.dumps(is_["type"])),
        field(4, required),
        field(5, not required and not is_.get("fixed", False)),
        field(6, computed),
        field(11, name.endswith("_wo")),  # never kept in the state
    ])


def block(is_):
    attributes = [field(2, attribute(name, each)) for name, each in sorted(is_["attributes"].items())]
    return b"".join(attributes + [field(3, nested(name, each)) for name, each in sorted(is_["blocks"].items())])


def nested(name, is_):
    counted = is_["nesting"] != "single"
    limits = field(4, is_["min"]) + field(5, is_["max"]) if counted else b""
    return field(1, name) + field(2, block(is_)) + field(3, NESTING[is_["nesting"]]) + limits


def schema(is_):
    return field(2, block(is_))


def simple(**types):
    attributes = {
        name: {"type": type_, "required": name == "length", "computed": name == "result"} for name, type_ in types.items()
    }
    return {"attributes": attributes, "blocks": {}}


def schemas():
    """The answer of each provider to GetProviderSchema: its own block is field 1, resources 2, ephemeral ones 8."""
    resources = json.loads((HERE / "google.json").read_text())
    google = field(1, schema(simple(project="string", region="string")))
    google += b"".join(field(2, field(1, name) + field(2, schema(each))) for name, each in resources.items())
    password = simple(length="number", special="bool", result="string")
    random = field(1, schema(simple())) + field(8, field(1, "random_password") + field(2, schema(password)))
    return {"google": google, "random": random}


class Provider(grpc.GenericRpcHandler):
    """Answers what validating and planning ask; whatever else is asked is an error."""

    def __init__(self, schemas):
        password = json.dumps({"length": 40, "special": False, "result": "x" * 40})
        self.answers = {
            "GetProviderSchema": schemas,
            "ValidateProviderConfig": b"",
            "ValidateResourceConfig": b"",
            "ValidateEphemeralResourceConfig": b"",
            "ConfigureProvider": b"",
            "OpenEphemeralResource": field(3, field(2, password)),
            "CloseEphemeralResource": b"",
            "StopProvider": b"",
        }

    def service(self, call):
        answer = self.answers.get(call.method.rsplit("/", 1)[-1])
        return None if answer is None else grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)


def serve(schemas):
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Provider(schemas)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def terraform(folder, scratch, reattach, *arguments):
    environment = dict(os.environ, TF_REATTACH_PROVIDERS=reattach, TF_DATA_DIR=str(scratch), CHECKPOINT_DISABLE="1")
    command = ["terraform", f"-chdir={folder}", *arguments, "-no-color"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip().splitlines()[-1:]


def main():
    scratch, folders = pathlib.Path(sys.argv[1]).absolute(), sys.argv[2:]
    servers = {name: serve(answer) for name, answer in schemas().items()}
    reattach = json.dumps({
        f"registry.terraform.io/hashicorp/{name}": {
            "Protocol": "grpc",
            "ProtocolVersion": 6,
            "Pid": os.getpid(),
            "Test": True,
            "Addr": {"Network": "tcp", "String": f"127.0.0.1:{port}"},
        }
        for name, (_server, port) in servers.items()
    })
    for folder in map(pathlib.Path, folders):
        shutil.rmtree(scratch, ignore_errors=True)
        terraform(folder, scratch, reattach, "init", "-backend=false", "-input=false")
        said = terraform(folder, scratch, reattach, "validate")
        if (folder / "tests").is_dir():
            said += terraform(folder, scratch, reattach, "test")
        print(f"{folder.parent.name}/{folder.name}: {' '.join(said)}")
    for server, _port in servers.values():
        server.stop(None)


main()
