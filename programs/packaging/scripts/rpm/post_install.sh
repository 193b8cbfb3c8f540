# The unit is neither enabled nor started, unless a preset of the administrator's says so.
make_directories_and_group
journalctl --update-catalog || true
reload_logind
if systemd_runs; then
    systemctl --system daemon-reload || true
fi
if [ "$1" = 1 ]; then
    systemctl --quiet --no-reload preset winddown.service || true
fi
