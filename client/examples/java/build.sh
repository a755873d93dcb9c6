#!/usr/bin/env bash
# build.sh FOLDER: makes the stub, the classes and the program FOLDER/hold, with what Debian has of Java's gRPC. Nothing is
# written elsewhere.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?build.sh FOLDER}/stub" "$1/classes"
out=$(cd "$1" && pwd)
jars=(
  grpc-api grpc-context grpc-core grpc-netty grpc-protobuf grpc-protobuf-lite grpc-stub
  netty-buffer netty-codec netty-codec-http netty-codec-http2 netty-codec-socks netty-common netty-handler
  netty-handler-proxy netty-resolver netty-transport netty-transport-native-unix-common
  geronimo-annotation-1.3-spec guava opencensus-api perfmark-api protobuf
)
class_path=$out/classes
for jar in "${jars[@]}"; do class_path+=:/usr/share/java/$jar.jar; done
protoc -I "$here/../../../proto" --java_out="$out/stub" --grpc-java_out="$out/stub" \
  --plugin=protoc-gen-grpc-java="$(command -v grpc_java_plugin)" semaphore/v1/semaphore.proto google/rpc/status.proto
find "$out/stub" -name '*.java' >"$out/sources"
javac -proc:none -d "$out/classes" -cp "$class_path" "@$out/sources" "$here/Hold.java"
printf '#!/bin/sh\nexec java -cp "%s" Hold "$@"\n' "$class_path" >"$out/hold"
chmod 755 "$out/hold"
