if [ "$1" = 0 ]; then
    # rpm removes the directories that a package has, and cargo-generate-rpm 0.21 gives it none.
    for directory in /usr/share/doc/winddown/docs/* /usr/share/doc/winddown/docs /usr/share/doc/winddown \
        /usr/share/winddown/*/* /usr/share/winddown/* /usr/share/winddown /usr/share/licenses/winddown \
        /usr/lib/systemd/system/cri-containerd-.scope.d /usr/lib/systemd/system/crio-.scope.d \
        /usr/lib/systemd/system/winddown.service.d; do
        rmdir "$directory" 2>/dev/null || true
    done
    remove_agents_drop_ins
    # The configuration that it belongs to is moved away as well (.rpmsave).
    remove_installs_drop_ins
    tell_of_mounts
    journalctl --update-catalog || true
    reload_logind
fi
if systemd_runs; then
    systemctl --system daemon-reload || true
    # After an upgrade, when the old version's files are gone. Pods and lock outlive it.
    if [ "$1" -ge 1 ]; then
        systemctl try-restart winddown.service || true
    fi
fi
