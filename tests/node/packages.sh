#!/bin/sh
# Looks for the Debian packages that targets need.
#
#   tests/node/packages.sh build|lint|test|packages|cross|fuzz...    names what this machine lacks; 1 if it lacks any
#   tests/node/packages.sh install      installs what any of them but cross needs (root, apt)
#   tests/node/packages.sh promtool     prints where that program is
#
# `promtool` is unpacked outside git and not installed: installed, Prometheus would listen on this machine.
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

if [ "${1:-}" = promtool ]; then
    unpacked promtool prometheus
    exit
fi

install=
if [ "${1:-}" = install ]; then
    install=1
    set -- build lint test packages fuzz
fi

missing=
need() {
    command -v "$1" >/dev/null || missing="$missing $2"
}

need cc gcc
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
for target in "$@"; do
    case $target in
    packages | test)
        need strip binutils
        need dpkg-deb dpkg
        need git git
        ;;
    esac
    case $target in
    build) ;;
    lint)
        need codespell codespell
        ;;
    fuzz)
        # What guides the input is written in C++.
        need c++ g++
        ;;
    cross)
        need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
        [ -e /usr/aarch64-linux-gnu/include/stdio.h ] || missing="$missing libc6-dev-arm64-cross"
        ;;
    packages)
        # The static program is linked with musl where rustup has its target.
        if [ -d "$(rustc --print sysroot)/lib/rustlib/$(uname -m)-unknown-linux-musl" ]; then
            need musl-gcc musl-tools
        fi
        ;;
    test)
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
        need btrfs btrfs-progs
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
        ;;
    *)
        sed -n 's/^#   //p' "$0" >&2
        exit 2
        ;;
    esac
done

if [ -n "$install" ] && command -v apt-get >/dev/null; then
    # Prometheus' own judge of rules and dashboards. Without it those tests skip.
    unpacked promtool prometheus >/dev/null || echo "promtool cannot be had: its tests will skip"
fi
if [ -z "$missing" ]; then
    exit 0
fi
missing=$(printf '%s\n' $missing | sort -u | tr '\n' ' ')
if [ -z "$install" ]; then
    echo "Missing here: $missing" >&2
    if command -v apt-get >/dev/null; then
        echo "Install them: sudo apt-get install $missing(or all that any target needs here: sudo make deps)" >&2
    else
        echo "These are Debian's names; this machine has no apt-get." >&2
    fi
    exit 1
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "Only root can install packages, and only where there is apt-get. Missing here: $missing" >&2
    exit 1
fi
echo "Installing Debian packages: $missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
install() { apt-get install --yes --no-install-recommends $missing >/dev/null; }
# The lists of a fresh machine are empty, those of an old one may name versions that are gone.
install 2>/dev/null || { apt-get update >/dev/null && install; }
