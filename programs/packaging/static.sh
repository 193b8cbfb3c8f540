#!/bin/sh
# Makes the tarball and the OCI image of programs that need no shared library, for nodes that take no packages.
#
# They are linked with musl where that target is installed, else with glibc, statically. Either is a
# build of its own: the packages' program is linked with the node's libc.
#
#   programs/packaging/static.sh [--machine MACHINE [--own DIR]] [--profile PROFILE] [--out DIR]
#
# MACHINE: as `uname -m` says it, this one unless said otherwise. Programs for another one are always linked with musl; for
# them and --out see programs/packaging/build.sh. PROFILE: dist. Another one is for trying.
set -eu
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
here=$(uname -m)
machine=$here own=${CARGO_TARGET_DIR:-target}/dist profile=dist out=target/packages
while [ $# -gt 0 ]; do
    case $1 in
    --machine) machine=$2 ;;
    --own) own=$2 ;;
    --profile) profile=$2 ;;
    --out) out=$2 ;;
    *) sed -n 's/^#   //p' "$0" >&2 && exit 2 ;;
    esac
    shift 2
done
libraries=$(rustc --print sysroot)/lib/rustlib
target=$machine-unknown-linux-musl

static=
if [ "$machine" != "$here" ]; then
    gcc=$machine-linux-gnu-gcc
    if [ ! -d "$libraries/$target" ] || ! command -v "$gcc" >/dev/null; then
        echo "static.sh: for $machine: rustup target add $target; tests/node/packages.sh cross names what else it takes" >&2
        exit 1
    fi
    # Two crates have C and assembly in them, and take of glibc's headers only what musl has too. Rust's own linker and
    # start files do the rest.
    name=$(echo "$machine" | tr '[:lower:]' '[:upper:]')
    export "CC_${machine}_unknown_linux_musl=$gcc" "AR_${machine}_unknown_linux_musl=$machine-linux-gnu-ar"
    export "CARGO_TARGET_${name}_UNKNOWN_LINUX_MUSL_LINKER=rust-lld"
    echo "The programs for $machine are linked with musl."
elif [ -d "$libraries/$target" ] && command -v musl-gcc >/dev/null; then
    echo "The tarball's program is linked with musl."
else
    target=$machine-unknown-linux-gnu
    static="-C target-feature=+crt-static"
    echo "The tarball's program is linked with glibc, statically. For musl:"
    echo "rustup target add $machine-unknown-linux-musl && apt-get install musl-tools"
fi
# For this build alone: what builds the packages has macros, which cannot be linked statically.
RUSTFLAGS="${RUSTFLAGS:-} $static" "$cargo" build --profile "$profile" --locked --package winddown --target "$target"
[ "$profile" != dev ] || profile=debug
built=${CARGO_TARGET_DIR:-target}/$target/$profile
programs/packaging/build.sh --programs "$built" --machine "$machine" --own "$own" --out "$out" tarball
programs/packaging/image.sh --programs "$built" --machine "$machine" --out "$out"
