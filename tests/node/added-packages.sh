#!/bin/sh
# Prints the path of an archive with what Debian packages add to a base.
#
#   tests/node/added-packages.sh BASE PACKAGE...
#
# It is made once for each base and kept outside git: installed in the node itself, which may emulate its
# processor, they would take minutes. None of their services starts at boot.
set -eu
base=$1
shift
tools=${XDG_CACHE_HOME:-$HOME/.cache}/winddown/tools
archive=$tools/$(basename "$base")-$(echo "$*" | tr ' ' '+').tar
if [ ! -e "$archive" ]; then
    mkdir -p "$tools"
    temp=$(mktemp -d)
    trap 'rm -rf "$temp"' EXIT
    mkdir "$temp/upper" "$temp/work" "$temp/root"
    chmod 0755 "$temp/upper"
    unshare --mount --propagation private sh -eu -c '
        base=$1 temp=$2
        shift 2
        mount -t overlay overlay -o "lowerdir=$base,upperdir=$temp/upper,workdir=$temp/work" "$temp/root"
        rm -f "$temp/root/etc/resolv.conf"
        cp /etc/resolv.conf "$temp/root/etc/resolv.conf"
        chroot "$temp/root" apt-get --quiet update
        DEBIAN_FRONTEND=noninteractive chroot "$temp/root" apt-get --quiet --yes \
            --option Dpkg::Options::=--force-unsafe-io --no-install-recommends install "$@"
    ' sh "$base" "$temp" "$@" >"$archive.log" 2>&1 || {
        tail -n 5 "$archive.log" >&2
        exit 1
    }
    rm -f "$temp/upper/etc/systemd/system/"*.wants/*
    tar --create --directory "$temp/upper" --exclude=./var/cache --exclude=./var/lib/apt \
        --exclude=./etc/resolv.conf --file "$archive.$$" .
    mv "$archive.$$" "$archive"
fi
echo "$archive"
