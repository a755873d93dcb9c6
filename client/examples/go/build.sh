#!/usr/bin/env bash
# build.sh FOLDER: makes the stub and the program FOLDER/hold, with what Debian has of Go's gRPC. Nothing is written elsewhere,
# but for Go's own cache.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "${1:?build.sh FOLDER}/gopath/src/hold"
out=$(cd "$1" && pwd)
protoc -I "$here/../../../proto" --go_out="$out/gopath/src" --go-grpc_out="$out/gopath/src" \
  semaphore/v1/semaphore.proto
cp "$here/hold.go" "$out/gopath/src/hold/"
cd "$out"
GO111MODULE=off GOPATH="$out/gopath:/usr/share/gocode" go build -o "$out/hold" hold
