#!/bin/sh
# Makes the tarball of a program that needs no shared library, for nodes that take no packages.
#
# It is linked with musl where that target is installed, else with glibc, statically. Either is a
# build of its own: the packages' program is linked with the node's libc.
#
#   packaging/static.sh
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
machine=$(uname -m)
libraries=$(rustc --print sysroot)/lib/rustlib

static=
if [ -d "$libraries/$machine-unknown-linux-musl" ] && command -v musl-gcc >/dev/null; then
    target=$machine-unknown-linux-musl
    echo "The tarball's program is linked with musl."
else
    target=$machine-unknown-linux-gnu
    static="-C target-feature=+crt-static"
    echo "The tarball's program is linked with glibc, statically. For musl:"
    echo "rustup target add $machine-unknown-linux-musl && apt-get install musl-tools"
fi
# For this build alone: what builds the packages has macros, which cannot be linked statically.
RUSTFLAGS="${RUSTFLAGS:-} $static" "$cargo" build --profile dist --locked --package winddown --target "$target"
packaging/build.sh --programs "${CARGO_TARGET_DIR:-target}/$target/dist" tarball
