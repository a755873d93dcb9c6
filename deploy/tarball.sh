#!/usr/bin/env bash
# Makes the tarball of both programs, which runs from any folder, and SHA256SUMS beside it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

usage() {
  cat <<'TEXT'
Usage: deploy/tarball.sh [--from BUILD_DIR] [--out FOLDER] [--help]

  --from BUILD_DIR   use the release build of these sources in BUILD_DIR, and build there what is missing
  --out FOLDER       where the tarball goes; default: build/packages

semaphored comes with the libraries that it needs but for glibc, semctl with them inside: bin/semctl alone can be
copied to another machine. The same sources and system libraries give the same bits, in whatever folder they are built.
Needs deploy/install.sh --packages.
TEXT
}

build=
out=$root/build/packages
while [ $# -gt 0 ]; do
  case "$1" in
    --from) build=$(cd "${2:?--from needs a folder}" && pwd); shift ;;
    --out) out=${2:?--out needs a folder}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

mkdir -p "$out" "$root/build"
out=$(cd "$out" && pwd)
work=$(mktemp -d "$root/build/tarball-XXXXXX")
trap 'rm -rf "$work"' EXIT

if [ -z "$build" ]; then
  build=$root/build/tarball
  # OpenSSL's macros put the name of the file that calls them into the program.
  CXXFLAGS="${CXXFLAGS:-} -fmacro-prefix-map=$root=." \
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DSEMAPHORED_TESTS=OFF >"$work/log"
fi
cmake --build "$build" --target semaphored semctl_static >"$work/log" || { tail -n 40 "$work/log" >&2; exit 1; }

version=$(sed -n 's/^project(semaphored VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
name=semaphored-$version-linux-$(uname -m)
tree=$work/$name
mkdir -p "$tree"/{bin,lib,share/licenses,share/proto,share/examples,share/completions}

# The note has a hash of the debugging symbols, which name the folder of the build.
plain() { # FROM TO
  strip --strip-all --remove-section=.note.gnu.build-id -o "$2" "$1"
}
plain "$build/bin/semctl_static" "$tree/bin/semctl"
plain "$build/bin/semaphored" "$tree/bin/semaphored"

# glibc is the system's: it must fit the system's dynamic linker, its locales and its name services.
glibc='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|nss_.*))\.so'
ldd "$build/bin/semaphored" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | LC_ALL=C sort | while read -r library path; do
  if ! [[ "$library" =~ $glibc ]]; then
    install -m 0644 "$(readlink -f "$path")" "$tree/lib/$library"
    # Its licence; where dpkg knows the file by another name, /usr/lib is /lib.
    package=$({ dpkg-query --search "$(readlink -f "$path")" || dpkg-query --search "$(readlink -f "$path" | sed 's|^/usr||')"; } \
      2>/dev/null | head -n 1 | cut -d : -f 1)
    cp "/usr/share/doc/$package/copyright" "$tree/share/licenses/$package"
  fi
done
# RPATH, not RUNPATH: the libraries find each other by it, too.
patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$tree/bin/semaphored"

cp "$root/LICENSE" "$root/README.md" "$tree/"
cp "$root/deploy/semaphored.example.toml" "$root/deploy/access.example.toml" "$root/deploy/systemd/"* "$tree/share/examples/"
(cd "$root/proto" && find . -name '*.proto' -exec cp --parents {} "$tree/share/proto" ';')
for shell in bash zsh fish; do "$tree/bin/semctl" completion "$shell" >"$tree/share/completions/semctl.$shell"; done

# The time of the sources, one owner, one order.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
chmod -R u=rwX,go=rX "$tree"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --format=ustar \
  -C "$work" -c "$name" | gzip -n -9 >"$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >SHA256SUMS)
echo "$out/$name.tar.gz"
