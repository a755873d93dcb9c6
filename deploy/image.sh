#!/bin/sh
# What the image has besides our own programs: the libraries that they are linked with, a user, a folder. Run by
# deploy/Dockerfile, and by the tests in a root folder of their own.
set -eu

apt-get update -q
# The programs' own libraries; what those need comes along.
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
  ca-certificates libcurl4 libgrpc++1.51 libjemalloc2 libpq5 libpqxx-6.4 libprometheus-cpp-pull1.0 libprotobuf32 librabbitmq4 \
  libspdlog1.10 libsqlite3-0 libssl3 libtomlplusplus3
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log

groupadd --gid 7420 semaphored
useradd --uid 7420 --gid 7420 --home-dir /var/lib/semaphored --no-create-home --shell /usr/sbin/nologin semaphored
install -d -o semaphored -g semaphored -m 0750 /var/lib/semaphored
