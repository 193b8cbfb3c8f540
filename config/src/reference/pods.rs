//! Pods from manifests.

use super::{Field, Kind, Section};

pub(super) const SECTION: Section = Section {
    title: "Pods from manifests",
    fields: &[
        Field::new(
            "staticPodPath",
            Kind::Path { empty: true },
            "The directory of pod manifests: one pod per .yaml, .yml or .json file. An empty text turns it \
             off.",
        ),
        Field::new(
            "fileCheckFrequency",
            Kind::INTERVAL,
            "Changes are noticed as they happen. This is how often the directory is looked through as \
             well, for file systems that do not tell.",
        ),
    ],
};
