if [ "$1" = 0 ]; then
    remove_agents_drop_ins
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
