#!/usr/bin/env bash
# Builds the .deb packages semaphored, semctl and libsemaphore-dev.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
  cat <<'TEXT'
Usage: deploy/deb.sh [--from BUILD_DIR] [--version VERSION] [--out FOLDER] [--help]

  --from BUILD_DIR   package what a release build of these sources has in BUILD_DIR, instead of building it
  --version VERSION  the packages' version; default: that of CMakeLists.txt
  --out FOLDER       where the packages go; default: build/packages

Needs deploy/install.sh --packages. Nothing outside of FOLDER and build/ is written.
TEXT
}

from=
version=$(sed -n 's/^project(semaphored VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
out=$root/build/packages
while [ $# -gt 0 ]; do
  case "$1" in
    --from) from=$(cd "${2:?--from needs a folder}" && pwd); shift ;;
    --version) version=${2:?--version needs a version}; shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

mkdir -p "$out" "$root/build"
out=$(cd "$out" && pwd)
work=$(mktemp -d "$root/build/deb-XXXXXX")
trap 'rm -rf "$work"' EXIT

# The headers have a folder of their own: google/rpc/ is no name for /usr/include.
configure() { # BUILD_DIR
  cmake -S "$root" -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSEMAPHORED_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr \
    -DCMAKE_INSTALL_LIBDIR="lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" \
    -DCMAKE_INSTALL_INCLUDEDIR=include/semaphored >"$work/configure.log" || { cat "$work/configure.log" >&2; exit 1; }
}
products=(bin/semaphored bin/semctl client/libsemaphore_client.a proto/libsemaphored_messages.a
  proto/libsemaphored_proto.a gen)
if [ -n "$from" ]; then
  build=$work/build
  configure "$build"
  for product in "${products[@]}"; do
    mkdir -p "$(dirname "$build/$product")"
    rm -rf "${build:?}/$product"
    cp -r "$from/$product" "$build/$product"
  done
else
  build=$root/build/deb
  configure "$build"
  cmake --build "$build" --target semaphored semctl semaphore_client
fi

# dpkg-buildpackage wants debian/ at the top of a tree, and writes the packages beside it.
tree=$work/tree/semaphored
mkdir -p "$tree"
cp -r "$root/deploy/debian" "$tree/debian"
cp -r "$root/deploy" "$tree/deploy"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
cat >"$tree/debian/changelog" <<TEXT
semaphored ($version) unstable; urgency=medium

  * What has changed is in CHANGELOG.md of the sources.

 -- $(sed -n 's/^Maintainer: //p' "$tree/debian/control")  $(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %H:%M:%S +0000')
TEXT
(cd "$tree" && SEMAPHORED_BUILD_DIR=$build DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-} nocheck" \
  dpkg-buildpackage --build=binary --unsigned-changes --unsigned-buildinfo) >"$work/package.log" 2>&1 ||
  { tail -n 60 "$work/package.log" >&2; exit 1; }
cp "$work/tree"/*.deb "$work/tree"/*.changes "$work/tree"/*.buildinfo "$out/"
ls "$out"/*_"$version"_*.deb
