#!/usr/bin/env bash
# Installs what a bare Debian 12 or 13 needs to build, test and measure semaphored. Idempotent: when all is
# there, it looks at dpkg's database and leaves at once, with neither network nor root.
set -euo pipefail

codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")

usage() {
  cat <<'TEXT'
Usage: deploy/install.sh [--unit] [--test] [--demo] [--bench] [--tidy] [--packages] [--help]

  (none)    what the build needs: compiler, CMake, gRPC, Protobuf, absl, SQLite and so on
  --unit    and what the tests need that start no engine and no other program: Catch2 3.7
  --test    and what all tests need: Catch2 3.7, Python's gRPC, clang with its sanitizers, the
            engines, small tools
  --packages  and what deploy/deb.sh and deploy/tarball.sh need
  --demo    and what deploy/quickstart.sh shows with: curl, Python
  --tidy    and clang-tidy
  --bench   and the peers that tests/bench/compare.sh measures against: etcd, Redis

Run it as root, or as a user who may use sudo. On Debian 12 Catch2 comes from bookworm-backports, and on
both Consul from bullseye, an older release; both from the mirror that the machine already uses, and
nothing else is taken from there. DynamoDB Local, buf, Connect and what client/node needs come by npm, into the user's cache,
where debootstrap also makes a root of Debian 13, whose Postgres and RabbitMQ the tests run, too.
TEXT
}

build_packages=(
  build-essential ca-certificates ccache cmake git ninja-build pkg-config
  libabsl-dev libboost-dev libc-ares-dev libcli11-dev libcurl4-openssl-dev libgrpc++-dev libjemalloc-dev libpq-dev
  libpqxx-dev
  libprotobuf-dev librabbitmq-dev libre2-dev libspdlog-dev libsqlite3-dev libssl-dev libtomlplusplus-dev
  libxxhash-dev nlohmann-json3-dev prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc zlib1g-dev
)
test_packages=(
  chromium chromium-driver clang clang-format curl debootstrap docker-compose e2fsprogs fish jq openssl iproute2 mount mypy
  golang-github-golang-protobuf-1-5-dev golang-go golang-google-grpc-dev golang-google-protobuf-dev
  libgeronimo-annotation-1.3-spec-java libgrpc-java libnetty-java libperfmark-java libprotobuf-java
  pgbouncer protobuf-compiler-grpc-java-plugin protoc-gen-go protoc-gen-go-grpc
  procps prometheus psmisc python3 python3-grpcio python3-jsonschema python3-protobuf
  python3-pika python3-pip python3-psycopg2 python3-setuptools python3-venv python3-wheel python3-yaml
  rabbitmq-server sqlite3 strace systemd systemd-container util-linux zsh
)
case "$codename" in
  bookworm) test_packages+=(libclang-rt-14-dev llvm-14 openjdk-17-jdk-headless postgresql-15 postgresql-client-15) ;;
  *) test_packages+=(libclang-rt-19-dev llvm-19 openjdk-21-jdk-headless postgresql-17 postgresql-client-17) ;;
esac
demo_packages=(curl python3)
deb_packages=(debhelper help2man patchelf)
test_packages+=("${deb_packages[@]}" lintian)
tidy_packages=(clang-tidy)
bench_packages=(etcd-client etcd-server redis-server redis-tools)
catch_version=3.7

want_catch=no
want_consul=no
want_npm=no
packages=("${build_packages[@]}")
for argument in "$@"; do
  case "$argument" in
    --unit) want_catch=yes ;;
    --test) packages+=("${test_packages[@]}"); want_catch=yes; want_consul=yes; want_npm=yes ;;
    --demo) packages+=("${demo_packages[@]}") ;;
    --packages) packages+=("${deb_packages[@]}") ;;
    --tidy) packages+=("${tidy_packages[@]}") ;;
    --bench) packages+=("${bench_packages[@]}") ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
done

say() { printf 'install: %s\n' "$*"; }

installed_version() {
  dpkg-query --show --showformat='${db:Status-Abbrev}${Version}\n' "$1" 2>/dev/null |
    sed -n 's/^ii //p' | head -n 1
}

catch_is_there() {
  local version
  version=$(installed_version libcatch2-dev)
  [ -n "$version" ] && dpkg --compare-versions "$version" ge "$catch_version"
}

# Not packages of Debian 12: the tests' own programs bring them into the user's cache.
fetch_into_cache() {
  [ "$want_npm" = yes ] || return 0
  python3 -B "$(dirname "$0")/../tests/engines/dynamodb.py" fetch >/dev/null
  python3 -B "$(dirname "$0")/../tests/e2e/node_packages.py" fetch >/dev/null
  "$(dirname "$0")/../tests/proto.sh" fetch >/dev/null
  # Before the tests, which look at when things happen. The tests of these engines need root as debootstrap does.
  if [ "$(id -u)" -eq 0 ]; then python3 -B "$(dirname "$0")/../tests/engines/root.py" make trixie; fi
}

# A machine that has Node and npm already, from any source, keeps them.
if [ "$want_npm" = yes ] && ! command -v node >/dev/null; then packages+=(nodejs); fi
if [ "$want_npm" = yes ] && ! command -v npm >/dev/null; then packages+=(npm); fi

missing=()
for package in "${packages[@]}"; do
  [ -n "$(installed_version "$package")" ] || missing+=("$package")
done
catch_missing=no
if [ "$want_catch" = yes ] && ! catch_is_there; then catch_missing=yes; fi
consul_missing=no
if [ "$want_consul" = yes ] && [ -z "$(installed_version consul)" ]; then consul_missing=yes; fi
if [ "${#missing[@]}" -eq 0 ] && [ "$catch_missing" = no ] && [ "$consul_missing" = no ]; then
  fetch_into_cache
  say "all ${#packages[@]} packages are there"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { say "not root, and no sudo: run this as root" >&2; exit 1; }
  as_root=(sudo)
fi
apt_get() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=300 "$@"
}

# Daemons that a package brings along (etcd, Redis) shall not be started: the tests start their own.
# A policy that was there before is left as it is.
policy=/usr/sbin/policy-rc.d
policy_is_ours=no
drop_policy() {
  if [ "$policy_is_ours" = yes ]; then "${as_root[@]}" rm -f "$policy"; fi
}
trap drop_policy EXIT
keep_daemons_down() {
  [ -e "$policy" ] && return
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
  policy_is_ours=yes
}

# A package that a service was started for before stays running: only what is new is held down.
say "updating the package lists"
apt_get -q update
if [ "${#missing[@]}" -gt 0 ]; then
  say "installing ${#missing[@]} packages: ${missing[*]}"
  keep_daemons_down
  apt_get install --no-install-recommends "${missing[@]}"
fi

# One line "URI KEYRING" of the source that this release's main part comes from.
release_source() {
  apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT) $(SIGNED_BY)' \
    'Created-By: Packages' |
    awk -v codename="$1" '$2 == codename && $3 == "main" {
      keyring = ($4 ~ /^\//) ? $4 : ""; print $1, keyring; exit }'
}

# Adds the suite $2 from the mirror of the machine's own release $1, pinned so that only the packages
# that follow the name of the new files ($3) come from it.
add_suite() {
  local codename=$1 suite=$2 file=$3 uri keyring
  shift 3
  read -r uri keyring < <(release_source "$codename") || true
  if [ -z "${uri:-}" ]; then
    say "no apt source of $codename main was found, so no mirror for $suite" >&2
    exit 1
  fi
  [ -n "${keyring:-}" ] || keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' \
    "$uri" "$suite" "$keyring" |
    "${as_root[@]}" tee "/etc/apt/sources.list.d/$file.sources" >/dev/null
  # The first paragraph that names a package wins over the general one.
  printf 'Package: %s\nPin: release n=%s\nPin-Priority: 990\n\nPackage: *\nPin: release n=%s\nPin-Priority: -1\n' \
    "$*" "$suite" "$suite" |
    "${as_root[@]}" tee "/etc/apt/preferences.d/$file" >/dev/null
}

if [ "$catch_missing" = yes ]; then
  suite=$codename
  # That of Debian 12 is too old.
  if [ "$codename" = bookworm ]; then suite=bookworm-backports; fi
  if ! apt-cache madison libcatch2-dev | grep -q "$suite/"; then
    say "adding $suite for Catch2 alone"
    add_suite "$codename" "$suite" semaphored-backports libcatch2-dev catch2
    apt_get -q update
  fi
  say "installing Catch2 from $suite"
  apt_get install --no-install-recommends "libcatch2-dev/$suite"
  catch_is_there || { say "Catch2 is still older than $catch_version" >&2; exit 1; }
fi
# Consul is not in this release; the one before has the last version under a free licence that Debian had.
if [ "$consul_missing" = yes ]; then
  if ! apt-cache madison consul | grep -q .; then
    say "adding bullseye for Consul alone"
    add_suite "$codename" bullseye semaphored-bullseye consul
    apt_get -q update
  fi
  say "installing Consul"
  keep_daemons_down
  apt_get install --no-install-recommends consul
fi
fetch_into_cache
say "done"
