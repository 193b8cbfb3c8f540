#!/bin/sh
# Installs the Debian packages that a target needs and this machine lacks.
#
#   tests/node/packages.sh build|test
#
# It says first what it is about to install. Without root, or on a machine without apt, it says what
# is missing and exits 0: the tests that need it will skip, or fail where nothing may be skipped.
set -eu

missing=
need() {
    command -v "$1" >/dev/null || missing="$missing $2"
}

need cc gcc
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
if [ "${1:-build}" = test ]; then
    need systemd-nspawn systemd-container
    need journalctl systemd
    need systemd-analyze systemd
    need debootstrap debootstrap
    need dbus-daemon dbus-daemon
    need dbus-send dbus-bin
    need nsenter util-linux
    need sha256sum coreutils
    # Real containers, in a directory of their own: whatever containerd runs here is not touched.
    need containerd containerd
    need runc runc
    [ -e /bin/busybox ] || need busybox busybox-static
    # Prometheus' own parser, which reads what the agent's metrics page says.
    /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null ||
        missing="$missing python3-prometheus-client"
fi
if [ -z "$missing" ]; then
    exit 0
fi
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')

if ! command -v apt-get >/dev/null; then
    echo "Missing here, and there is no apt-get to install them with (Debian's names): $missing"
    exit 0
fi
if [ "$(id -u)" != 0 ]; then
    echo "Missing here: $missing"
    echo "Not root, so going on without. To have them: sudo apt-get install $missing"
    exit 0
fi
echo "Installing Debian packages: $missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
install() { apt-get install --yes --no-install-recommends $missing >/dev/null; }
# The lists of a fresh machine are empty, those of an old one may name versions that are gone.
install 2>/dev/null || { apt-get update >/dev/null && install; }
