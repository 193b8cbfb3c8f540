//! winddown.service(8).

use super::Page;
use super::roff::RoffWriter;

const DESCRIPTION: &str = "\
`winddown.service` runs the agent, `winddownd`(8). It tells systemd that it is ready when the shutdown \
lock (a delay lock of the login manager, seen in `systemd-inhibit --list`) is held, or is known not to be \
available. Whether the node is protected is what `winddown doctor` says.

When the node's shutdown begins, the agent terminates the pods in order while the lock holds the shutdown back, \
and then releases the lock. On shutdowns that bypass the login manager (`systemctl start \
poweroff.target`) systemd stops the unit, and the agent terminates the \
pods then.";

const VERBS: [(&str, &str); 5] = [
    ("systemctl enable --now winddown", "Starts the agent, now and at each boot."),
    (
        "systemctl reload winddown",
        "Reads the configuration again (SIGHUP). What cannot be applied is named in the log and in \
         `winddown status`, and waits for a restart. A configuration that is not valid changes nothing.",
    ),
    (
        "systemctl restart winddown",
        "Pods keep running. systemd keeps the lock while no agent runs, so the node stays protected.",
    ),
    (
        "systemctl stop winddown",
        "Pods keep running, unattended, and the lock is released: the node is not protected. \
         `winddown drain` terminates the pods first.",
    ),
    ("systemctl edit winddown", "Settings of your own. The unit itself is replaced by an upgrade."),
];

const SIGNALS: [(&str, &str); 2] = [
    ("SIGHUP", "Reads the configuration again."),
    (
        "SIGTERM, SIGINT",
        "Stops the agent. Only while the machine is going down are the pods terminated first.",
    ),
];

const FILES: [(&str, &str); 7] = [
    ("/etc/winddown/config.yaml", "The configuration, see `winddown.yaml`(5)."),
    (
        "/etc/systemd/logind.conf.d/zz-winddown.conf",
        "Lets the login manager wait as long as the pods need (`InhibitDelayMaxSec=`). It sorts last \
         because the last file wins; the one that `unattended-upgrades` brings would otherwise. The \
         agent writes it while the login manager would give less without it, and removes it when it \
         gives enough.",
    ),
    (
        "winddown.service.d/10-process-runtime.conf",
        "With `runtime: process`: pods are not stopped with the agent.",
    ),
    ("/run/winddown", "The control socket, and what a restart has to know."),
    ("/var/lib/winddown", "What a reboot has to know, and the reports."),
    ("/var/log/winddown", "The logs of the containers."),
    (
        "/var/log/containers",
        "Links to these logs, by which log shippers find them. A kubelet's are in the same directory.",
    ),
];

pub(super) fn page() -> Page {
    let mut page = RoffWriter::new(
        "winddown.service",
        8,
        "terminates the node's pods in order before the machine goes down",
    );
    page.heading("SYNOPSIS");
    page.text("`winddown.service`");
    page.heading("DESCRIPTION");
    page.text(DESCRIPTION);
    for (title, entries) in
        [("VERBS", &VERBS[..]), ("SIGNALS", &SIGNALS[..]), ("FILES", &FILES[..])]
    {
        page.heading(title);
        for (term, text) in entries {
            page.term(term, text);
        }
    }
    page.heading("EXIT STATUS");
    page.text(
        "0 when it was asked to stop. systemd restarts it after any other exit, except 2 (the command \
         line is wrong) and 78 (the configuration is invalid), which a retry cannot fix.",
    );
    page.heading("SEE ALSO");
    page.text(
        "`winddown`(1), `winddownd`(8), `winddown-doctor`(1), `winddown.yaml`(5), `systemd-inhibit`(1), `logind.conf`(5)",
    );
    Page { name: "winddown.service".to_owned(), section: 8, text: page.finish() }
}
