#!/usr/bin/env python3
"""Writes proto/openapi.json, the API by HTTP in OpenAPI 3.1, from the .proto.

  openapi.py          writes the file
  openapi.py check    fails if the file is not what would be written

It needs protoc and Python's protobuf. What HTTP has beside the methods of the .proto is in PATHS below.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

from google.protobuf import descriptor_pb2

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "openapi.json")
FILE = "semaphore/v1/semaphore.proto"
SERVICE = "semaphore.v1.SemaphoreService"
COMMENT_BYTES_MAX = 2000

Field = descriptor_pb2.FieldDescriptorProto
# Numbers of 64 bits are strings in JSON; both forms are read.
SCALARS = {
    Field.TYPE_STRING: {"type": "string"},
    Field.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    Field.TYPE_BOOL: {"type": "boolean"},
    Field.TYPE_DOUBLE: {"type": "number"},
    Field.TYPE_INT32: {"type": "integer", "format": "int32"},
    Field.TYPE_UINT32: {"type": "integer", "minimum": 0, "maximum": 2**32 - 1},
    Field.TYPE_INT64: {"type": ["string", "integer"], "format": "int64"},
    Field.TYPE_UINT64: {"type": ["string", "integer"], "format": "uint64"},
}
TIMESTAMP = "google.protobuf.Timestamp"


def descriptor_set():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "set")
        subprocess.run(["protoc", f"-I{HERE}", "--include_source_info", "--include_imports",
                        f"--descriptor_set_out={path}", os.path.join(HERE, FILE)], check=True)
        with open(path, "rb") as file:
            return descriptor_pb2.FileDescriptorSet.FromString(file.read())


class Api:
    """The messages and enums of all files, by their full names, and the comments of what they have."""

    def __init__(self):
        self.types, self.comments = {}, {}
        for file in descriptor_set().file:
            comments = {tuple(each.path): each.leading_comments for each in
                        file.source_code_info.location if each.leading_comments}
            for number, message in enumerate(file.message_type):
                self._add(file.package, message, (4, number), comments)
            for number, enum in enumerate(file.enum_type):
                self._add_enum(file.package, enum, (5, number), comments)
            for number, service in enumerate(file.service):
                if f"{file.package}.{service.name}" != SERVICE:
                    continue
                self.service = service
                for each, method in enumerate(service.method):
                    self.comments[f"{SERVICE}.{method.name}"] = comments.get((6, number, 2, each))

    def _add(self, scope, message, path, comments):
        name = f"{scope}.{message.name}"
        self.types[name] = message
        self.comments[name] = comments.get(path)
        for number, field in enumerate(message.field):
            self.comments[f"{name}.{field.name}"] = comments.get((*path, 2, number))
        for number, nested in enumerate(message.nested_type):
            self._add(name, nested, (*path, 3, number), comments)
        for number, enum in enumerate(message.enum_type):
            self._add_enum(name, enum, (*path, 4, number), comments)

    def _add_enum(self, scope, enum, path, comments):
        self.types[f"{scope}.{enum.name}"] = enum
        self.comments[f"{scope}.{enum.name}"] = comments.get(path)

    def comment(self, name):
        text = re.sub(r"\s*\n\s?", "\n", self.comments.get(name) or "").strip()
        return {"description": text[:COMMENT_BYTES_MAX]} if text else {}

    def schema_of(self, name, needed):
        """Of a message or an enum. What it refers to is added to `needed`."""
        kind = self.types[name]
        if isinstance(kind, descriptor_pb2.EnumDescriptorProto):
            return {"type": "string", "enum": [value.name for value in kind.value],
                    **self.comment(name)}
        properties, choices = {}, {}
        for field in kind.field:
            properties[field.json_name] = {**self.value_of(field, needed),
                                           **self.comment(f"{name}.{field.name}")}
            if field.HasField("oneof_index") and not field.proto3_optional:
                choices.setdefault(field.oneof_index, []).append(field.json_name)
        schema = {"type": "object", "properties": properties, "additionalProperties": False,
                  **self.comment(name)}
        # At most one of each group.
        exclusive = [{"not": {"required": [one, other]}}
                     for group in choices.values()
                     for place, one in enumerate(group) for other in group[place + 1:]]
        return {**schema, "allOf": exclusive} if exclusive else schema

    def value_of(self, field, needed):
        if field.type in (Field.TYPE_MESSAGE, Field.TYPE_ENUM):
            value = self.reference(field.type_name[1:], needed)
        else:
            value = dict(SCALARS[field.type])
        if field.label != Field.LABEL_REPEATED:
            return value
        entry = self.types.get(field.type_name[1:])
        if isinstance(entry, descriptor_pb2.DescriptorProto) and entry.options.map_entry:
            return {"type": "object",
                    "additionalProperties": self.value_of(entry.field[1], needed)}
        return {"type": "array", "items": value}

    @staticmethod
    def reference(name, needed):
        if name == TIMESTAMP:
            return {"type": "string", "format": "date-time"}
        if name == "google.protobuf.Any":
            return {"type": "object", "properties": {"@type": {"type": "string"}}}
        needed.add(name)
        return {"$ref": f"#/components/schemas/{name}"}


ERROR = {
    "type": "object", "required": ["code"],
    "properties": {
        "code": {"type": "string"}, "message": {"type": "string"},
        "details": {"type": "array", "items": {
            "type": "object", "required": ["type", "value"],
            "properties": {
                "type": {"type": "string"},
                "value": {"type": "string", "contentEncoding": "base64"},
                "debug": {"type": "object"}}}}},
    "description": "An error, as Connect's protocol has it. The detail of type google.rpc.ErrorInfo has the reason, "
                   "and advice in its metadata; debug is the detail as JSON."}


def content(kind, schema):
    return {"content": {kind: {"schema": schema}}}


def responses(good):
    return {"200": good, "default": {"description": "An error.",
                                     **content("application/json",
                                               {"$ref": "#/components/schemas/Error"})}}


def paths_of(api, needed):
    paths = {}
    for method in api.service.method:
        if method.client_streaming:
            continue  # Not served by HTTP.
        request = api.reference(method.input_type[1:], needed)
        answer = api.reference(method.output_type[1:], needed)
        operation = {"operationId": method.name, **api.comment(f"{SERVICE}.{method.name}"),
                     "requestBody": {"required": True, **content("application/json", request)}}
        if method.server_streaming:
            operation["responses"] = responses({
                "description": "Server-sent events; the data of each is this message. The last is `end`, or "
                               "`error` with an Error.",
                **content("text/event-stream", answer)})
            paths[f"/v1/{method.name.lower()}"] = {"post": operation}
        else:
            operation["parameters"] = [{
                "name": "Connect-Timeout-Ms", "in": "header", "required": False,
                "description": "Of the whole call.",
                "schema": {"type": "string", "pattern": "^[0-9]{1,10}$"}}]
            operation["responses"] = responses({"description": "Done.",
                                                **content("application/json", answer)})
            paths[f"/{SERVICE}/{method.name}"] = {"post": operation}
    watch = paths["/v1/watch"]
    fields = api.types["semaphore.v1.WatchRequest"].field
    watch["get"] = {
        "operationId": "WatchByQuery", "description": "Watch, for a browser's EventSource.",
        "parameters": [{"name": field.name, "in": "query", "required": False,
                        "schema": {"type": "string"},
                        **api.comment(f"semaphore.v1.WatchRequest.{field.name}")}
                       for field in fields if field.name in ("prefix", "semaphore")],
        "responses": watch["post"]["responses"]}
    return paths


def document():
    api = Api()
    needed = set()
    paths = paths_of(api, needed)
    schemas, done = {"Error": ERROR}, set()
    while needed - done:
        name = min(needed - done)
        done.add(name)
        schemas[name] = api.schema_of(name, needed)
    return {
        "openapi": "3.1.0",
        "info": {"title": "semaphored", "version": "v1",
                 "description": "Permits of named, counting semaphores, by HTTP and JSON. Fields may be named as here or "
                                "as in the .proto; unknown fields are refused. docs/http.md says more."},
        "servers": [{"url": "http://127.0.0.1:7422"}],
        "security": [{}, {"token": []}, {"certificate": []}],
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items())),
                       "securitySchemes": {"token": {"type": "http", "scheme": "bearer"},
                                           "certificate": {"type": "mutualTLS"}}}}


def main(arguments):
    text = json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
    if arguments == []:
        with open(TARGET, "w", encoding="utf-8") as file:
            file.write(text)
    elif arguments == ["check"]:
        with open(TARGET, encoding="utf-8") as file:
            if file.read() != text:
                sys.exit("proto/openapi.json is not what the .proto says: run proto/openapi.py")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
