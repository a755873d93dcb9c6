#!/bin/sh
# man.sh BIN_DIR FOLDER: the manual pages, made of what the programs say at --help.
set -eu
mkdir -p "$2"
page() { # PROGRAM SECTION NAME
  help2man --no-info --no-discard-stderr --section "$2" --name "$3" --output "$folder/$1.$2" "$bin/$1"
}
bin=$1
folder=$2
page semaphored 8 'hand out permits of named, counting semaphores over gRPC'
page semctl 1 'run commands under permits of semaphored, and administer its semaphores'
