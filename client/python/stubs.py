#!/usr/bin/env python3
"""Generates the package's modules of messages from the .proto files, which are the only truth.

Usage: stubs.py PROTO_ROOT PACKAGE_DIR [PROTOC PLUGIN]

PROTO_ROOT has semaphore/v1/semaphore.proto; the modules come into PACKAGE_DIR/v1. PROTOC and PLUGIN,
grpc_python_plugin, are looked for on the path if they are not given; without them grpcio-tools does it.

Two things are other than protoc makes them. The modules belong to the package `semaphored`, instead
of one that is called `semaphore` like anybody's. And the messages of rich errors are under a name of
our own: they must never meet googleapis-common-protos' in one program, which Protobuf refuses.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

_ERRORS = "google/rpc/error_details.proto"
_API = "semaphore/v1/semaphore.proto"


def generate(proto_root, package_dir, protoc=None, plugin=None):
    """Fails with the compiler's own message."""
    proto_root, target = pathlib.Path(proto_root), pathlib.Path(package_dir) / "v1"
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        own = work / "semaphored" / "v1"
        own.mkdir(parents=True)
        text = (proto_root / _ERRORS).read_text(encoding="utf-8")
        (own / "error_details.proto").write_text(
            text.replace("package google.rpc;", "package semaphored.v1;"), encoding="utf-8")
        out = work / "out"
        out.mkdir()
        _run(protoc, plugin, [
            f"-I{work}", f"-I{proto_root}", f"--python_out={out}", f"--pyi_out={out}"],
            ["semaphored/v1/error_details.proto"], grpc=None)
        _run(protoc, plugin, [
            f"-I{proto_root}", f"--python_out={out}", f"--pyi_out={out}"], [_API], grpc=out)
        target.mkdir(parents=True, exist_ok=True)
        for made in [*out.glob("semaphored/v1/*.py*"), *out.glob("semaphore/v1/*.py*")]:
            text = made.read_text(encoding="utf-8")
            text = text.replace("from semaphore.v1 import semaphore_pb2",
                                "from semaphored.v1 import semaphore_pb2")
            text = text.replace("'semaphore.v1.semaphore_pb2'", "'semaphored.v1.semaphore_pb2'")
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
