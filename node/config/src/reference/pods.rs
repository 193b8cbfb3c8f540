//! The options for pods from manifests.

use super::{OptionSection, Top, ValueKind};
use crate::Trust;

pub(super) fn section() -> OptionSection {
    let rows = vec![
        Top::new("staticPodPath", |c| &mut c.static_pod_path, ValueKind::Path { empty: true }).trusted(Trust::Manifests).doc(
            "The directory of pod manifests: each file is one pod's, unless its name begins with a dot. \
             An empty text turns it off.",
        ),
        Top::new("fileCheckFrequency", |c| &mut c.file_check_frequency, ValueKind::INTERVAL)
            .doc(
                "Changes are noticed as they happen. This is how often the directory is looked through \
                 as well, where changes go unnoticed.",
            )
            .zero_is_unset(),
    ];
    OptionSection { title: "Pods from manifests", rows, relate: |_, _, _| {} }
}
