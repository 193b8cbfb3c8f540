# Beginning of every maintainer script and scriptlet; programs/packaging/build.sh joins the two.
#
# A node has systemd, but a chroot or an image under construction has none that runs, and
# DPKG_ROOT may name another root: what is not there is passed over.

agents_drop_ins="/etc/systemd/logind.conf.d/zz-winddown.conf /run/systemd/logind.conf.d/zz-winddown.conf"

systemd_runs() {
    [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]
}

# logind reads its configuration at start and on SIGHUP; a restart would do no harm, but says more
# in the journal.
reload_logind() {
    if systemd_runs; then
        systemctl kill -s HUP systemd-logind.service || true
    fi
}

# What the package needs and dpkg or rpm cannot bring: empty directories, and group winddown. The
# unit's sandbox opens the first directory for writing, so that it must be there.
make_directories_and_group() {
    for directory in /etc/systemd/logind.conf.d /etc/winddown/pods; do
        [ -d "${DPKG_ROOT:-}$directory" ] || mkdir -p -m 0755 "${DPKG_ROOT:-}$directory"
    done
    systemd-sysusers ${DPKG_ROOT:+--root="$DPKG_ROOT"} winddown.conf || true
    systemd-tmpfiles ${DPKG_ROOT:+--root="$DPKG_ROOT"} --create winddown.conf || true
}

# The agent raises logind's delay by a file of the same name in /etc, and by one in /run where /etc
# is read-only. They say in their first line whose they are, and go with the agent. What an
# administrator put there (a link to /dev/null, for one) stays.
remove_agents_drop_ins() {
    for file in $agents_drop_ins; do
        file=${DPKG_ROOT:-}$file
        if [ -f "$file" ] && [ ! -L "$file" ] && head -n 1 "$file" | grep -q '^#.*winddown'; then
            rm -f "$file"
        fi
    done
    rmdir "${DPKG_ROOT:-}/etc/systemd/logind.conf.d" "${DPKG_ROOT:-}/etc/winddown/pods" \
        2>/dev/null || true
}

# "winddown install" hides the package's drop-in for the process runtime where pods run otherwise, and raises the unit's
# stop timeout. What it has made it notes in /var/lib/winddown.
remove_installs_drop_ins() {
    directory=${DPKG_ROOT:-}/etc/systemd/system/winddown.service.d
    if [ "$(readlink "$directory/10-process-runtime.conf")" = /dev/null ]; then
        rm -f "$directory/10-process-runtime.conf"
    fi
    order=${DPKG_ROOT:-}/etc/systemd/system/winddown-order.target.d
    needrestarts=${DPKG_ROOT:-}/etc/needrestart/conf.d
    for file in "$directory/20-stop-time.conf" "$order/50-kubelet.conf" "$needrestarts/winddown.conf"; do
        if grep -qs '^#.*winddown install' "$file"; then
            rm -f "$file"
        fi
    done
    rmdir "$directory" "$order" "$needrestarts" "${needrestarts%/*}" 2>/dev/null || true
}

# Pods outlive their agent on purpose. Removing the agent names those that are left. In the process runtime every
# container's supervisor holds the lock of a file while it lives. Files of the same name in another runtime's directories
# are in volumes, where a container makes what it likes: they are not opened.
tell_of_running_pods() {
    running=
    for held in "${DPKG_ROOT:-}"/var/lib/winddown/process/pods/*/*/*/supervisor; do
        if [ -f "$held" ] && ! flock --nonblock "$held" true; then
            log=$(sed -n 's/.*"log": *"\([^"]*\)".*/\1/p' "${held%/*}/attempt.json" 2>/dev/null) || true
            pod=${log%/*/*}
            pod=${pod##*/}
            name=${pod#*_}
            running="$running${pod%%_*}/${name%%_*}
"
        fi
    done
    if [ -n "$running" ]; then
        echo "winddown: these pods go on running without an agent, and a shutdown will not wait for them:"
        printf '%s' "$running" | sort -u | sed 's/^/  /'
        echo "winddown: next time, 'winddown drain' terminates them first; now, reinstall and do so, or reboot."
    elif grep -q '^mode: *companion' "${DPKG_ROOT:-}/etc/winddown/config.yaml" 2>/dev/null; then
        echo "winddown: the kubelet's pods go on running."
    elif grep -q '^runtime: *\(cri\|systemd\)' "${DPKG_ROOT:-}/etc/winddown/config.yaml" 2>/dev/null; then
        echo "winddown: pods that containerd, CRI-O or systemd run go on running, without an agent."
    fi
}

# A package manager cannot be refused as "winddown uninstall" refuses it. Beside a kubelet whose own graceful shutdown is
# off, what that says is said as loudly as it can be, while the program is still here to say it. A drain with a deadline
# stops the kubelet before the pods of its manifests.
tell_of_kubelet() {
    systemd_runs || return 0
    stopped=${DPKG_ROOT:-}/run/winddown/kubelet-stopped
    if [ -e "$stopped" ]; then
        read -r unit <"$stopped" || true
        echo "winddown: WARNING: the drain has stopped ${unit:=kubelet.service}, and no agent starts it again:"
        echo "  systemctl start $unit"
    fi
    # Without --force the steps are in an error, which goes to standard error.
    steps=$(winddown uninstall --dry-run --force 2>/dev/null | sed '1,/^Next:$/d') || true
    [ -n "$steps" ] || return 0
    echo "winddown: WARNING: without winddown NOTHING ENDS THE KUBELET'S PODS in order: a shutdown kills them."
    echo "winddown: So that the kubelet terminates them itself, do this before the next shutdown:"
    printf '%s\n' "$steps"
}

# What is mounted below a directory is not the package's: volumes that pods use, or an operator's disk.
# The kernel writes a blank in a path as \040, so that the fifth word is the whole mount point.
mounts_below() {
    directory=$(realpath -m "$1")
    while read -r _ _ _ _ point _; do
        case $point in
        "$directory"/*) printf '%s\n' "$point" ;;
        esac
    done </proc/self/mountinfo
}

# rpm has no purge that could refuse: who removes the directories by hand would delete what is mounted below them.
tell_of_mounts() {
    [ -r /proc/self/mountinfo ] || return 0
    for kept in /var/lib/winddown /var/log/winddown; do
        mounts_below "${DPKG_ROOT:-}$kept" | while read -r point; do
            echo "winddown: WARNING: $point is mounted below $kept: 'rm -r' there deletes what is mounted."
            echo "winddown: End the pods, and 'umount $point' before you remove that directory."
        done
    done
}
