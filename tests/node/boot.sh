#!/bin/sh
# Becomes the systemd-nspawn process of one disposable node, or the kernel of one that has its own.
#
#   boot.sh NAME BASE DIR
#
# It is started in mount and process namespaces of its own, so that everything mounted or started
# here goes away with it, however it ends. DIR holds upper/ and work/ (an overlay over BASE) or a
# finished root/.
set -eu
name=$1 base=$2 dir=$3

# Two nodes in one control group would take each other's services for their own, so each gets a
# group in every hierarchy. cpuset is left out: its new groups start without cpus, and systemd does
# not use it. Where systemd runs the machine, it has handed out the group already.
if [ ! -d /run/systemd/system ]; then
    while read -r _ path type options _; do
        case $type,$options in
        cgroup,*cpuset*) ;;
        cgroup,* | cgroup2,*)
            # Version 2 hands controllers on where it is told to, if version 1 does not have them.
            [ "$type" = cgroup ] || echo "+cpu +io +memory +pids" >"$path/cgroup.subtree_control" 2>/dev/null || :
            mkdir -p "$path/$name"
            # A machine of its own has its processors to itself, also while this one compiles.
            [ ! -e "$path/$name/cpu.shares" ] || echo 20480 >"$path/$name/cpu.shares"
            [ ! -e "$path/$name/cpu.weight" ] || echo 782 >"$path/$name/cpu.weight"
            echo $$ >"$path/$name/cgroup.procs"
            ;;
        esac
    done </proc/mounts
fi

if [ -d "$dir/upper" ]; then
    mkdir -p "$dir/root"
    mount -t overlay overlay -o "lowerdir=$base,upperdir=$dir/upper,workdir=$dir/work" "$dir/root"
fi

# A root with a kernel in it is booted by that. The kernel, or the machine that is emulated for it, runs in
# the base, which has the libraries it wants, with the node's root as its disk; standard input is the
# serial line that commands come by. A node that reboots ends, like one that is switched off.
in_base() {
    mount --bind "$base" "$base"
    mount -t proc proc "$base/proc"
    # Its memory, which is taken as the node uses it.
    mount -t tmpfs -o mode=1777 tmpfs "$base/tmp"
    mount --bind "$dir/root" "$base/mnt"
    cd /
}
if [ -x "$dir/root/usr/bin/linux.uml" ]; then
    in_base
    # /dev/ubda: swap cannot be on the root's file system. It takes room as it is written to.
    truncate -s 400M "$base/tmp/disk"
    # Its only way out, where containers may want one: a wire to this network, which is its own.
    set --
    if [ -x "$base/usr/bin/ip" ] && [ -c /dev/net/tun ]; then
        mount --rbind /dev "$base/dev"
        chroot "$base" sh -ec 'ip tuntap add wire mode tap
ip address add 10.99.0.1/24 dev wire
ip link set wire up'
        set -- vec0:transport=tap,ifname=wire
    fi
    exec chroot "$base" env -i PATH=/usr/bin HOME=/tmp TMPDIR=/tmp LD_PRELOAD=/usr/lib/xstate.so \
        linux.uml mem=1G umid=node noreboot root=/dev/root rootfstype=hostfs rootflags=/mnt rw ubd0=/tmp/disk \
        con=null con0=null,fd:2 ssl=null ssl0=fd:0,fd:0 console=tty0 selinux=0 quiet "$@"
fi
if [ -x "$dir/root/usr/bin/qemu-system-x86_64" ]; then
    in_base
    kernel=$(cd "$base" && echo boot/vmlinuz-*)
    # It ends with the first process of this namespace, which becomes the emulator.
    chroot "$base" /usr/libexec/virtiofsd --socket-path=/tmp/root --shared-dir=/mnt --sandbox=none \
        --rlimit-nofile=0 </dev/null &
    until [ -S "$base/tmp/root" ]; do
        kill -0 $! || exit
        sleep 0.05
    done
    # The disk's file system is in the kernel, so nothing has to be loaded before it. What the kernel says
    # goes to the second serial line; /tmp/monitor is where the power key is.
    exec chroot "$base" env -i PATH=/usr/bin HOME=/tmp TMPDIR=/tmp \
        qemu-system-x86_64 -machine q35 -cpu max -smp 2 -m 1G -accel tcg,thread=multi,tb-size=512 \
        -object memory-backend-memfd,id=memory,size=1G,share=on -numa node,memdev=memory \
        -chardev socket,id=root,path=/tmp/root -device vhost-user-fs-pci,chardev=root,tag=root \
        -chardev socket,id=line,fd=3 -serial chardev:line \
        -chardev stdio,id=console,signal=off -serial chardev:console \
        -monitor unix:/tmp/monitor,server,nowait -nic none -vga none -display none -no-reboot \
        -kernel "/$kernel" -append "root=root rootfstype=virtiofs rw console=ttyS1 quiet psi=1 \
            mitigations=off tsc=reliable no_timer_check nohz=off highres=off systemd.show_status=no" 3<&0 </dev/null
fi

# Overlays cannot lie on an overlay, so what containers run from is on the host's disk.
if [ -d "$dir/containers" ]; then
    set -- --bind="$dir/containers:/var/lib/containerd"
else
    set --
fi

# What nodes have in common, like the storage of a cluster.
if [ -d "$dir/shared" ]; then
    set -- "$@" --bind="$(readlink -f "$dir/shared"):/srv/shared"
fi

# A disk of the agent's own, that can be filled up and can hang.
if [ -f "$dir/state.img" ]; then
    mount -o loop "$dir/state.img" "$dir/state"
    set -- "$@" --bind="$dir/state:/var/lib/winddown"
fi

# The three system calls are what container runtimes use for keyrings and device rules.
exec systemd-nspawn --quiet --directory="$dir/root" --machine="$name" --boot \
    --register=no --keep-unit --private-network --link-journal=no --resolv-conf=off \
    --timezone=off --console=pipe --capability=all \
    --system-call-filter="add_key keyctl request_key bpf" "$@"
