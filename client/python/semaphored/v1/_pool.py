"""The pool of the package's messages. It has the method by which generated modules ask for the pool
of the whole program, and takes its place; see stubs.py."""

from typing import Any, Dict

from google.protobuf import any_pb2, descriptor_pool, duration_pb2, timestamp_pb2
from google.protobuf.internal import builder

_POOL = descriptor_pool.DescriptorPool()


def Default() -> descriptor_pool.DescriptorPool:
    """As descriptor_pool.Default."""
    return _POOL


# The standard messages that the package's messages have in them: as their own modules make them.
for _module in (any_pb2, duration_pb2, timestamp_pb2):
    _POOL.AddSerializedFile(_module.DESCRIPTOR.serialized_pb)
    _file = _POOL.FindFileByName(_module.DESCRIPTOR.name)
    _made: Dict[str, Any] = {}
    builder.BuildMessageAndEnumDescriptors(_file, _made)
    builder.BuildTopDescriptorsAndMessages(_file, __name__, _made)
