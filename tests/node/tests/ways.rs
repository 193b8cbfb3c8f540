//! Every way down that a container can take, each on plain nodes of systemd 252, 257 and 262, and on one
//! with the drop-in of `unattended-upgrades`, which allows less than the configuration asks for.
//!
//! What a container cannot do: `systemctl --force` (asks nothing, by design), and a key: there is no
//! `/dev/input`, and logind takes keys from udev only. `IdleAction=` stands in for the power key: logind
//! carries both out by the same function (`manager_handle_action`), which is not the one that D-Bus
//! callers reach. No kernel can be loaded for `systemctl kexec`, so `/sys/kernel/kexec_loaded` is made to
//! say that one is; logind and systemd take their real path and nspawn ends it as a reboot. An emulated
//! machine has both.
//!
//! And the way up after each: `start`.

mod down;
mod emulated;
mod guard;
mod hooks;
mod no_bus;
mod notice;
mod power_supply;
mod scheduled;
mod soft_reboot;
mod start;
