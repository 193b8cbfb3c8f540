#!/bin/sh
# Compiles for arm64, and runs that on an emulated machine.
#
#   arm64-boot.sh BUILD MACHINE TARGET REGISTRY DEB
#
# DEB: winddown's package for arm64.
#
# It is started by arm64.sh in mount and process namespaces of its own, so that everything mounted or started here goes away
# with it. Nothing is written to BUILD and MACHINE, the roots.
set -eu
build=$1 machine=$2 target=$3 registry=$4 deb=$5
overlay() {
    mkdir "$2" "$2.work" "$3"
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$2.work" "$3"
}
mount -t tmpfs tmpfs /mnt
overlay "$build" /mnt/.build /mnt/build
overlay "$machine" /mnt/.machine /mnt/machine
for root in /mnt/build /mnt/machine; do
    mkdir -p $root/src $root/target $root/proc $root/dev
    mount --rbind . $root/src
    mount --bind "$target" $root/target
done
mount --rbind /mnt/machine /mnt/build/mnt
mkdir -p /mnt/build/cargohome/registry
mount --bind "$registry" /mnt/build/cargohome/registry
mount -t proc proc /mnt/build/proc
mount --rbind /dev /mnt/build/dev

# Tests are not run here: runner.sh notes how they are.
rm -rf "$target/jobs"
mkdir "$target/jobs"
chroot /mnt/build env -i PATH=/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 CARGO_HOME=/cargohome CARGO_NET_OFFLINE=true \
    CARGO_TERM_COLOR=never CARGO_TARGET_DIR=/target CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=/src/tests/node/runner.sh WINDDOWN_JOBS=/target/jobs \
    PROPTEST_CASES=16 PROPTEST_RNG_SEED=1 SHUTTLE_RANDOM_SEED=1 sh -euc '
cd /src
# With the example, cargo chooses the features of the tests: see the Makefile.
cargo build --locked --workspace --bin winddown --bin winddownd --bin winddown-shim --example agent
without=$(printf -- "--exclude %s " xtask winddown-apiserver winddown-bench winddown-cluster-tests winddown-fuzz \
    winddown-node-tests winddown-runtimes-tests)
cargo test --locked --workspace $without --lib --bins -- --show-output'

# The rest of the namespaces' life is the machine's. What it needs of packages that were not set up are these links.
for name in bin lib sbin; do
    [ -e /mnt/machine/$name ] || ln -s usr/$name /mnt/machine/
done
mkdir -p /mnt/machine/sys /mnt/machine/run /mnt/machine/root /mnt/build/run
mount -t tmpfs -o mode=1777 tmpfs /mnt/build/tmp
cp /mnt/machine/usr/lib/modules/*/vmlinuz /mnt/build/tmp/
src=$PWD
cd /

# emulate OPTIONS: runs the machine until it is off, with these of its kernel.
emulate() {
    chroot /mnt/build /usr/libexec/virtiofsd --socket-path=/tmp/root --shared-dir=/mnt --sandbox=none --announce-submounts \
        --rlimit-nofile=0 </dev/null &
    until [ -S /mnt/build/tmp/root ]; do
        kill -0 $! || return
        sleep 0.05
    done
    shares=$!
    # Its time is that of the instructions it has run (-icount), so that none of its deadlines passes because this machine is busy.
    chroot /mnt/build env -i PATH=/usr/bin HOME=/tmp TMPDIR=/tmp \
        qemu-system-aarch64 -machine virt -cpu cortex-a76 -smp 2 -m 2G -accel tcg,thread=single,tb-size=512 -icount shift=0 \
        -object memory-backend-memfd,id=memory,size=2G,share=on -numa node,memdev=memory \
        -chardev socket,id=root,path=/tmp/root -device vhost-user-fs-pci,chardev=root,tag=root \
        -serial stdio -monitor none -nic none -display none -no-reboot -kernel /tmp/vmlinuz \
        -append "root=root rootfstype=virtiofs rw console=ttyAMA0 quiet psi=1 mitigations=off $1" </dev/null
    wait $shares || :
}

# As a node: systemd boots it, winddown's package is installed, and the node is powered off. Booted again, it says how that was.
sh "$src/tests/node/arm64-node.sh" prepare /mnt/machine "$deb"
for _ in shuts-down tells; do
    emulate "TERM=dumb systemd.getty_auto=0 systemd.mask=ldconfig.service systemd.mask=systemd-hwdb-update.service"
done
emulate init=/src/tests/node/arm64-init.sh
