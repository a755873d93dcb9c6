#!/usr/bin/env python3
"""Generates the package's modules of messages from the .proto files, which are the only truth.

Usage: stubs.py PROTO_ROOT PACKAGE_DIR [PROTOC PLUGIN]

PROTO_ROOT has semaphore/v1/semaphore.proto; the modules come into PACKAGE_DIR/v1. PROTOC and PLUGIN,
grpc_python_plugin, are looked for on the path if they are not given; without them grpcio-tools does it.

Two things are other than protoc makes them, so that the package never meets another copy of the same
messages in one program, which Protobuf refuses: a stub of the program's own, or googleapis-common-protos'.
The modules belong to the package `semaphored`. And their messages are in a pool of their own, v1/_pool.py.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

_PROTOS = ["google/rpc/status.proto", "google/rpc/error_details.proto", "semaphore/v1/semaphore.proto"]
_REPLACED = [
    (r"from (?:semaphore\.v1|google\.rpc) import", "from semaphored.v1 import"),
    (r"'(?:semaphore\.v1|google\.rpc)\.(\w+_pb2)'", r"'semaphored.v1.\1'"),
    (r"from google\.protobuf import descriptor_pool as _descriptor_pool",
     "from semaphored.v1 import _pool as _descriptor_pool"),
]


def generate(proto_root, package_dir, protoc=None, plugin=None):
    """Fails with the compiler's own message."""
    proto_root, target = pathlib.Path(proto_root), pathlib.Path(package_dir) / "v1"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        options = [f"-I{proto_root}", f"--python_out={out}", f"--pyi_out={out}"]
        _run(protoc, plugin, options, _PROTOS[:2], grpc=None)
        _run(protoc, plugin, options, _PROTOS[2:], grpc=out)
        target.mkdir(parents=True, exist_ok=True)
        for made in out.glob("*/*/*.py*"):
            text = made.read_text(encoding="utf-8")
            for pattern, replacement in _REPLACED:
                text = re.sub(pattern, replacement, text)
            (target / made.name).write_text(text, encoding="utf-8")


def _run(protoc, plugin, options, files, grpc):
    protoc = protoc or shutil.which("protoc")
    plugin = plugin or shutil.which("grpc_python_plugin")
    if protoc and plugin:
        command = [protoc, *options]
        if grpc is not None:
            command += [f"--grpc_out={grpc}", f"--plugin=protoc-gen-grpc={plugin}"]
    else:
        command = [sys.executable, "-m", "grpc_tools.protoc", *options]
        if grpc is not None:
            command += [f"--grpc_python_out={grpc}"]
    subprocess.run(command + files, check=True)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    generate(*sys.argv[1:])
