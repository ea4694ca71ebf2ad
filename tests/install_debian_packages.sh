#!/usr/bin/env bash
# Bring the programs of Debian's packages that tests run: a browser, and Prometheus with promtool.
#
#   tests/install_debian_packages.sh FOLDER
#
# What is there already is left alone. Chromium is installed with what it needs; Prometheus, which would start itself
# as a service, is only unpacked under FOLDER. Without apt-get, or without the right to use it, it says what is missing: the
# tests that need it are skipped, with the reason.
set -euo pipefail
folder=$1
export DEBIAN_FRONTEND=noninteractive

missing() {
  echo "$1 is not there and cannot be installed here: tests that need it are skipped ($2)" >&2
}

as_root() {
  [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null
}

updated=
update() {
  [ -n "$updated" ] || apt-get update -qq || return 1
  updated=yes
}

install_chromium() {
  update && apt-get install -qq -y --no-install-recommends chromium > /dev/null
}

unpack_prometheus() {
  local package
  package=$(mktemp -d)
  mkdir -p "$folder"
  update && (cd "$package" && apt-get download -qq -o APT::Sandbox::User=root prometheus) &&
    dpkg -x "$package"/prometheus_*.deb "$folder"
  rm -rf "$package"
}

if ! command -v chromium > /dev/null; then
  { as_root && install_chromium; } || missing chromium "Debian: apt install chromium"
fi
if ! command -v promtool > /dev/null && [ ! -x "$folder/usr/bin/promtool" ]; then
  { as_root && unpack_prometheus; } || missing prometheus "Debian: apt install prometheus"
fi
