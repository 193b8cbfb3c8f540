#!/bin/sh
# The first process of the emulated arm64 machine: runs what arm64-boot.sh has compiled, and switches the machine off.
# Each part ends with "test result:", as cargo has it.
export PATH=/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8
# There is no cargo to say where the snapshots are.
export INSTA_WORKSPACE_ROOT=/src INSTA_UPDATE=no
for type in proc:/proc sysfs:/sys cgroup2:/sys/fs/cgroup tmpfs:/tmp tmpfs:/run; do
    mount -t ${type%%:*} none ${type#*:}
done
mkdir -p /dev/shm /dev/pts && mount -t tmpfs none /dev/shm && mount -t devpts none /dev/pts
echo arm64 >/proc/sys/kernel/hostname
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
# The packages were not set up.
echo root:x:0:0:root:/root:/bin/sh >/etc/passwd
echo root:x:0: >/etc/group
busybox ip link set lo up
cd /src || exit
uname -srm
programs=/target/aarch64-unknown-linux-gnu/debug

# One of the examples ignores SIGTERM on purpose.
$programs/winddown drill docs/examples/node --config docs/examples/node-config.yaml >/tmp/drill 2>&1
cat /tmp/drill
if grep -q '^Forced drill: 1 of 11 pods had to be killed, all terminated in' /tmp/drill; then
    echo "test result: ok. 1 passed; 0 failed"
else
    echo "FAILED: drill"
fi
for job in /target/jobs/*.sh; do
    echo "RUNNING: ${job##*/}"
    timeout 3600 sh "$job" </dev/null 2>&1
    status=$?
    # 101: tests have failed, as they have said.
    case $status in 0 | 101) ;; *) echo "FAILED: ${job##*/}: $status" ;; esac
done
read -r up _ </proc/uptime
echo "ENDED after $up s"
echo o >/proc/sysrq-trigger
sleep infinity
