#!/usr/bin/env bash
# Bring programs of Debian's packages that tests run.
#
#   tests/install_debian_packages.sh FOLDER PROGRAM…      (chromium, prometheus, redis, java, maven)
#
# What is there already is left alone. Nothing is started as a service: Prometheus is only unpacked under FOLDER, and of
# Redis the tools are installed, whose binary is the server's too. Without apt-get, or without the right to use it, it
# says what is missing: the tests that need it are skipped, or tell it again.
set -euo pipefail
folder=$1
shift
export DEBIAN_FRONTEND=noninteractive
mkdir -p "$folder/usr/bin"

as_root() {
  [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null
}

updated=
update() {
  [ -n "$updated" ] || apt-get update -qq || return 1
  updated=yes
}

install() {
  update && apt-get install -qq -y --no-install-recommends "$1" > /dev/null
}

unpack() {
  local package
  package=$(mktemp -d)
  update && (cd "$package" && apt-get download -qq -o APT::Sandbox::User=root "$1") && dpkg -x "$package/$1"_*.deb "$folder"
  rm -rf "$package"
}

# The server's program under its own name: what it is called decides what it does.
install_redis() {
  install redis-tools && ln -sf /usr/bin/redis-check-rdb "$folder/usr/bin/redis-server"
}

# bring COMMAND PACKAGE HOW…
bring() {
  local program=$1 package=$2
  shift 2
  if ! command -v "$program" > /dev/null && [ ! -x "$folder/usr/bin/$program" ]; then
    { as_root && "$@"; } || echo "$program is not there and cannot be installed here (Debian: apt install $package)" >&2
  fi
}

for each in "$@"; do
  case $each in
    chromium) bring chromium chromium install chromium ;;
    prometheus) bring promtool prometheus unpack prometheus ;;
    redis) bring redis-server redis-server install_redis ;;
    java) bring java default-jre-headless install default-jre-headless ;;
    maven) bring mvn maven install maven ;;
    *) echo "$each is not known here" >&2 && exit 2 ;;
  esac
done
