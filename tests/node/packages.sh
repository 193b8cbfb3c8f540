#!/bin/sh
# Installs the Debian packages that a target needs and this machine lacks.
#
#   tests/node/packages.sh build|lint|test|packages|cross|fuzz|promtool
#
# `promtool` unpacks a package outside git, without installing it, and prints where the program is: installed,
# Prometheus would listen on this machine.
#
# It says first what it is about to install. Without root, or on a machine without apt, it says what
# is missing and exits 0, as it does where nothing can be installed: the tests that need it will skip, or fail
# where nothing may be skipped.
set -eu

# unpacked PROGRAM PACKAGE: prints where the program is.
unpacked() {
    if command -v "$1"; then
        return
    fi
    tools=${XDG_CACHE_HOME:-$HOME/.cache}/winddown/tools
    program=$tools/$2/usr/bin/$1
    if [ ! -x "$program" ]; then
        temp=$(mktemp -d)
        trap 'rm -rf "$temp"' EXIT
        # apt's own user cannot write to a directory of root's, and says so at length.
        fetch() { (cd "$temp" && apt-get download "$2" >/dev/null 2>&1); }
        fetch "$@" || { apt-get update >/dev/null && fetch "$@"; }
        mkdir -p "$tools"
        # Two at once: the one that is ready first stays.
        dpkg-deb --extract "$temp/$2"_*.deb "$temp/root"
        mv -T "$temp/root" "$tools/$2" 2>/dev/null || [ -x "$program" ] || return 1
    fi
    echo "$program"
}

case ${1:-} in
promtool) unpacked promtool prometheus && exit 0 ;;
esac

missing=
need() {
    command -v "$1" >/dev/null || missing="$missing $2"
}

need cc gcc
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
case ${1:-} in
packages | test)
    need strip binutils
    need dpkg-deb dpkg
    need git git
    ;;
esac
if [ "${1:-}" = cross ]; then
    need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || missing="$missing libc6-dev-arm64-cross"
fi
if [ "${1:-}" = lint ]; then
    need codespell codespell
fi
# What guides the input of `make fuzz` is written in C++.
if [ "${1:-}" = fuzz ]; then
    need c++ g++
fi
# The static program is linked with musl where rustup has its target.
if [ "${1:-}" = packages ] && [ -d "$(rustc --print sysroot)/lib/rustlib/$(uname -m)-unknown-linux-musl" ]; then
    need musl-gcc musl-tools
fi
if [ "${1:-build}" = test ]; then
    # The packages' judges.
    need lintian lintian
    need rpm rpm
    need cpio cpio
    need systemd-nspawn systemd-container
    need journalctl systemd
    need systemd-analyze systemd
    need mmdebstrap mmdebstrap
    need wget wget
    [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || need debian-archive-keyring debian-archive-keyring
    need dbus-daemon dbus-daemon
    need dbus-send dbus-bin
    need nsenter util-linux
    need sha256sum coreutils
    # Real containers, in a directory of their own: whatever containerd runs here is not touched.
    need containerd containerd
    need runc runc
    [ -e /bin/busybox ] || need busybox busybox-static
    # A browser for the report's page, and what drives it. A sans-serif font that is always the same.
    need chromium chromium
    need chromedriver chromium-driver
    [ -d /usr/share/fonts/truetype/dejavu ] || missing="$missing fonts-dejavu-core"
    # Counts instructions and allocations.
    need valgrind valgrind
    # A terminal of its own for the live view.
    need setsid util-linux
    # Prometheus' own parser, which reads what the agent's metrics page says.
    /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null ||
        missing="$missing python3-prometheus-client"
    # The manual as its readers read it, completions in their shells, and somebody else's judgement of
    # the JSON schemas.
    need man man-db
    need groff groff
    need zsh zsh
    need fish fish
    /usr/bin/python3 -c 'import jsonschema' 2>/dev/null || missing="$missing python3-jsonschema"
fi
if [ "${1:-build}" = test ] && command -v apt-get >/dev/null; then
    # Prometheus' own judge of rules and dashboards. Without it those tests skip.
    unpacked promtool prometheus >/dev/null || echo "promtool cannot be had: its tests will skip"
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
install 2>/dev/null || { apt-get update >/dev/null && install; } ||
    echo "Could not be installed, so going on without: $missing"
