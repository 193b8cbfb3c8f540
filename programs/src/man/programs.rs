//! winddownd(8) and winddown-shim(8), the programs that users do not run themselves.

use super::Page;
use super::roff::RoffWriter;

const DAEMON: &str = "\
`winddownd` takes the login manager's delay lock, runs the pods of the manifests directory and terminates them in \
order when the node shuts down. `winddown.service`(8) runs it, and says what its signals and files are; \
`winddown`(1) asks it.

Under systemd it logs to the journal, elsewhere to standard error.";

/// The options in `winddownd --help`; a test in `programs` compares the two.
const OPTIONS: [(&str, &str); 5] = [
    (
        "--config FILE",
        "The configuration file; `/etc/winddown/config.yaml` unless `WINDDOWN_CONFIG` names another.",
    ),
    (
        "--socket PATH",
        "The control socket, instead of the one that the configuration names. Also from `WINDDOWN_SOCKET`.",
    ),
    ("--root DIR", "Put this directory before every path of the configuration, for tests."),
    ("--help", "Print help."),
    ("--version", "Print the version."),
];

const VARIABLES: [(&str, &str); 1] = [(
    "WINDDOWN_LOG",
    "The level: error, warn, info, debug or trace; info unless said otherwise. Of one part of the program: \
     `info,winddown_systemd=debug`.",
)];

const EXIT_STATUS: [(&str, &str); 5] = [
    ("0", "Stopped by a signal."),
    ("1", "Cannot start."),
    ("2", "The command line is wrong."),
    ("9", "Lost a task that the node depends on, and exited to be restarted."),
    ("78", "The configuration is invalid."),
];

const SHIM: &str = "\
`winddownd` starts one `winddown-shim` for each container that is a program of this host. It is that \
program's parent, keeps its log, and records how it exited, so that pods keep running while \
the agent is restarted or replaced. Killing one by hand kills its container.

It has to be in the directory of `winddownd`. It is not for people, and its arguments may change.";

pub(super) fn pages() -> [Page; 2] {
    let mut daemon =
        RoffWriter::new("winddownd", 8, "the agent that terminates a node's pods in order");
    daemon.heading("SYNOPSIS");
    daemon.text("`winddownd` [`--config` FILE] [`--socket` PATH]");
    daemon.heading("DESCRIPTION");
    daemon.text(DAEMON);
    for (title, entries) in
        [("OPTIONS", &OPTIONS[..]), ("ENVIRONMENT", &VARIABLES), ("EXIT STATUS", &EXIT_STATUS)]
    {
        daemon.heading(title);
        for (term, text) in entries {
            daemon.term(term, text);
        }
    }
    daemon.heading("SEE ALSO");
    daemon.text("`winddown`(1), `winddown.yaml`(5), `winddown.service`(8)");

    let mut shim = RoffWriter::new("winddown-shim", 8, "holds one container for winddownd");
    shim.heading("DESCRIPTION");
    shim.text(SHIM);
    shim.heading("SEE ALSO");
    shim.text("`winddownd`(8)");
    [("winddownd", daemon), ("winddown-shim", shim)].map(|(name, page)| Page {
        name: name.to_owned(),
        section: 8,
        text: page.finish(),
    })
}
