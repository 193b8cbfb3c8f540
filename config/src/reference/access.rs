//! Logs, state, and who may talk to the agent.

use super::{Field, Kind, Section};

pub(super) const SECTION: Section = Section {
    title: "Logs, state, access",
    fields: &[
        Field::new(
            "podLogsDir",
            Kind::PATH,
            "Where the containers' logs are. The kubelet's /var/log/pods would do, but a kubelet on this \
             machine removes what it does not know from there.",
        ),
        Field::new(
            "containerLogMaxSize",
            Kind::Size { least: "4Ki" },
            "When a log is rotated.",
        ),
        Field::new(
            "containerLogMaxFiles",
            Kind::integer(2, 1000),
            "How many log files of a container are kept, the current one included.",
        ),
        Field::new(
            "stateDirectory",
            Kind::PATH,
            "What has to survive a restart: which processes belong to which pod, reports of past \
             shutdowns.",
        ),
        Field::new(
            "controlSocket",
            Kind::PATH,
            "The socket the commands talk to. Root may do everything.",
        ),
        Field::new(
            "controlSocketGroup",
            Kind::Text { pattern: "^[A-Za-z0-9_.-]{1,32}$" },
            "A group that has to exist, and whose members may do everything as well. Left out, or with \
             group 0, only root may: mode 0600.",
        )
        .example("winddown"),
        Field::new(
            "metricsAddress",
            Kind::ANY_TEXT,
            "Metrics are on the control socket. This serves them over TCP as well, without authentication.",
        )
        .example("127.0.0.1:9477"),
    ],
};
