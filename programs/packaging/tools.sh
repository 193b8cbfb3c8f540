#!/bin/sh
# Prints the path of a program that makes packages, building it from source first if need be.
#
#   programs/packaging/tools.sh cargo-generate-rpm
#
# Kept outside git. The versions are fixed so that the same commit gives the same packages.
set -eu
case $1 in
cargo-generate-rpm) version=0.21.1 ;;
*) echo "tools.sh: what is $1?" >&2 && exit 2 ;;
esac
tools=${XDG_CACHE_HOME:-$HOME/.cache}/winddown/tools
program=$tools/bin/$1
mkdir -p "$tools"
# Two that find it missing at once: the second waits, and finds it.
exec 8>"$tools/.$1.lock"
flock 8
if ! "$program" --version 2>/dev/null | grep -q -w -F "$version"; then
    echo "Building $1 $version into $tools (two minutes, once)" >&2
    # A cargo that runs us, as in a test, would pass on where it builds the workspace to.
    env -u CARGO_TARGET_DIR "${CARGO:-cargo}" install --quiet --locked --force --root "$tools" "$1@$version" >&2 8>&-
fi
echo "$program"
