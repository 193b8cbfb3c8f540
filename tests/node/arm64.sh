#!/bin/sh
# Runs winddown's package, the unit tests and a rehearsed shutdown on an emulated arm64 machine, and ends with a line
# "N passed, N failed, N skipped (N: why)".
#
#   tests/node/arm64.sh
#
# Two Debian roots are made, once, outside git, as those of base.sh: one of this machine's architecture, with the compiler,
# whose standard library Debian has for arm64 too, and the emulator; and one for arm64, with a kernel and the programs
# that tests start. The latter's packages are only unpacked.
#
# Exit codes: 0 all passed, or this machine lacks something, 1 one failed, 2 wrong usage.
set -eu
[ $# = 0 ] || { sed -n 's/^#   //p' "$0" >&2 && exit 2; }
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/winddown/node
target=$(realpath -m "${CARGO_TARGET_DIR:-target}/arm64")

lacks() {
    echo "SKIPPED: arm64: $*"
    [ -z "${WINDDOWN_NO_SKIP:-}" ]
    exit
}
[ "$(uname -m)" = x86_64 ] || lacks "only x86-64 machines emulate it; on arm64, 'make test' is the test"
[ "$(id -u)" = 0 ] || lacks "making roots and mounting them needs root"
command -v mmdebstrap >/dev/null || lacks "run 'apt-get install mmdebstrap'"

# make_root NAME OPTIONS...: sets `root`.
make_root() {
    name=sid-$1
    shift
    root=$cache/$name-$(echo "$@" | sha256sum | cut -c1-12)
    exec 9>"$cache/lock-$name"
    flock 9
    if [ ! -e "$root" ]; then
        echo "arm64.sh: making $root (a minute to five, once)" >&2
        rm -rf "$cache/.partial-$name"
        mmdebstrap --quiet --mode=root --aptopt='Acquire::Check-Valid-Until "false"' "$@" sid "$cache/.partial-$name" \
            "${WINDDOWN_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$cache/$name.log" 2>&1 9>&- ||
            { tail -n 15 "$cache/$name.log" >&2 && exit 1; }
        mv "$cache/.partial-$name" "$root"
    fi
    exec 9>&-
}
command -v rustup >/dev/null || lacks "the package for arm64 is compiled with what 'rustup target add' gets"
tests/node/packages.sh cross || lacks "install the packages that are named above"
mkdir -p "$cache" "$target"
rm -f target/packages/winddown_*_arm64.deb
"${MAKE:-make}" --no-print-directory packages MACHINE=aarch64 PROFILE=release TRIAL=1
# mold links in seconds what takes Debian's own linker a minute.
make_root arm64-build --variant=minbase --architectures=amd64,arm64 --customize-hook='ln -sf mold "$1/usr/bin/aarch64-linux-gnu-ld"' \
    --include=rustc,cargo,libstd-rust-dev:arm64,gcc-aarch64-linux-gnu,libc6-dev:arm64,mold,qemu-system-arm,virtiofsd
build=$root
make_root arm64 --variant=extract --architectures=arm64 --skip=check/qemu \
    --include=linux-image-arm64,dash,coreutils,findutils,grep,sed,util-linux,mount,procps,libgcc-s1,busybox \
    --include=systemd,systemd-sysv,dbus,dpkg,tar,diffutils,libc-bin,init-system-helpers,perl-base
# No crate is fetched in the root, which does not trust what this machine trusts.
${CARGO:-cargo} fetch --quiet --locked

unshare --mount --propagation private --pid --fork --kill-child=KILL --mount-proc \
    sh tests/node/arm64-boot.sh "$build" "$root" "$target" "${CARGO_HOME:-$HOME/.cargo}/registry" \
    "$(realpath target/packages/winddown_*_arm64.deb)" >"$target/log" 2>&1 || :
awk '
    { sub(/\r$/, "") }
    match($0, /test result: .*/) {
        split(substr($0, RSTART), part, /[.;] */)
        for (i in part) {
            if (part[i] ~ / passed$/) passed += part[i]
            if (part[i] ~ / failed$/) failed += part[i]
        }
    }
    /^SKIPPED: / && !seen[$2]++ { passed--; skipped++; count[substr($0, length($2) + 11)]++ }
    /^LEFT: / && !seen[$2]++ { passed-- }
    /^FAILED: / { failed++ }
    /^FAILED: |^test .* FAILED$|^ENDED/
    /^ENDED/ { ended = 1 }
    END {
        if (!ended) { failed++; print "The machine did not get to its end." }
        print "The whole output is in target/arm64/log."
        printf "%d passed, %d failed, %d skipped", passed, failed, skipped
        for (why in count) printf "%s%d: %s", any++ ? "; " : " (", count[why], why
        print any ? ")" : ""
        exit failed > 0
    }
' "$target/log"
