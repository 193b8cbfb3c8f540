//! How the time before a shutdown is shared out.

use super::{Field, Kind, Section};

/// 0 is off.
const PERIOD: Kind = Kind::Duration { least: "1s", most: "24h", zero: true };

const GROUP: &[Field] = &[
    Field::new(
        "priority",
        Kind::integer(i32::MIN as i64, i32::MAX as i64),
        "The lowest priority of the group's pods.",
    ),
    Field::new(
        "shutdownGracePeriodSeconds",
        Kind::Integer { least: 0, most: 86_400, unit: "seconds" },
        "The group's time.",
    ),
];

const NOTICES: &[Field] = &[
    Field::new(
        "cloud",
        Kind::Choice(&["none", "aws", "azure", "gcp"]),
        "Whose metadata service is asked: `aws` (spot interruption, maintenance), `azure` (scheduled \
         events), `gcp` (preemption, maintenance) or `none`.",
    ),
    Field::new("pollInterval", Kind::INTERVAL, "How often it is asked."),
    Field::new(
        "metadataEndpoint",
        Kind::Text { pattern: "^http://[-A-Za-z0-9.:\\[\\]]+/?$" },
        "Replaces the service's own address.",
    )
    .example("http://169.254.169.254"),
    Field::new(
        "file",
        Kind::PATH,
        "Gives notice while it is there: it holds how long the node has (90s) or until when \
         (2026-01-31T12:00:00Z).",
    )
    .example("/run/winddown/notice"),
];

pub(super) const SECTION: Section = Section {
    title: "Shutdown",
    fields: &[
        Field::new(
            "shutdownGracePeriod",
            PERIOD,
            "How long the node's shutdown may be held up for the pods; 0s turns it off.\n\n\
             Pods have 30s of grace unless their manifest says otherwise. 30s lets nearly all of them end \
             by themselves, and is no longer than people wait before they reach for the power switch.",
        )
        .live(),
        Field::new(
            "shutdownGracePeriodCriticalPods",
            PERIOD,
            "The end of it, which all but ordinary pods have to themselves. If `shutdownGracePeriod` \
             stands alone, this is a third of it, at most 10s.",
        )
        .live(),
        Field::new(
            "shutdownOrder",
            Kind::Choice(&["role", "priority"]),
            "What puts pods into groups. By `role`, ordinary pods end first; then system pods (priority \
             2000000000 and above, or of a DaemonSet); then what the node itself needs (priority \
             2000001000 and above, system pods on the host's network, static pods without a priority); \
             then the static control plane; etcd last. By `priority`, there are two groups, as the \
             kubelet makes them: below 2000000000, and from there on. Left out, it is `role` if neither \
             period above is written, and `priority` otherwise.",
        )
        .live(),
        Field::new(
            "shutdownEndpointDrainPeriod",
            Kind::Duration { least: "0s", most: "24h", zero: true },
            "How long pods are not ready before the first SIGTERM, so that load balancers turn away from \
             them. Comes before the time above and is at most as long. When time is short, this is given \
             up first.",
        )
        .live(),
        Field::new(
            "shutdownReserve",
            Kind::Duration { least: "0s", most: "5m", zero: true },
            "What is kept back after the pods' time for their last status and the report. Never more than \
             a tenth of what logind gives.",
        )
        .live(),
        Field::new(
            "shutdownGracePeriodByPodPriority",
            Kind::List { of: GROUP, required: &["priority", "shutdownGracePeriodSeconds"] },
            "Groups of your own. Each has the pods from its priority up to the next group's; the lowest \
             takes those below it as well. Remove `shutdownGracePeriod`, \
             `shutdownGracePeriodCriticalPods` and `shutdownOrder`, which this replaces.",
        )
        .example(
            "- priority: 0\n  shutdownGracePeriodSeconds: 20\n\
             - priority: 10000\n  shutdownGracePeriodSeconds: 20\n\
             - priority: 2000000000\n  shutdownGracePeriodSeconds: 10",
        )
        .live(),
        Field::new(
            "shutdownNotices",
            Kind::Object(NOTICES),
            "Who may give notice that this node ends at a certain time, beside the login manager and an \
             operator (`winddown drain --deadline`). The pods are then ended in the same order, in the \
             time that the notice leaves.",
        ),
        Field::new(
            "reportsKept",
            Kind::integer(1, 1000),
            "Of how many shutdowns the report is kept.",
        ),
    ],
};
