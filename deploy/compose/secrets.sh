#!/bin/sh
# Makes the secrets that docker-compose.yml hands to the engines and the daemons, once: what is there stays. Only
# who made them can read them, so the containers' users are given them by the engine that runs them.
set -eu

usage() {
  cat <<'TEXT'
Usage: sh deploy/compose/secrets.sh [--help]

Makes deploy/compose/secrets/: passwords for Postgres and RabbitMQ, the broker's settings with the same password,
and keys for DynamoDB Local, which takes any. Files that are there are left as they are.
TEXT
}
case "${1:-}" in
  '') ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

folder=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)/secrets
umask 077
mkdir -p "$folder"
# The folder keeps others out. In it the files can be read, also by a container's user.
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
put() { # NAME TEXT
  [ -e "$folder/$1" ] || printf '%s\n' "$2" >"$folder/$1"
  chmod 444 "$folder/$1"
}

put postgres_password "$(random)"
put rabbitmq_password "$(random)"
put rabbitmq.conf "default_user = semaphored
default_pass = $(cat "$folder/rabbitmq_password")"
put aws_credentials "[default]
aws_access_key_id = local
aws_secret_access_key = $(random)"
echo "$folder"
