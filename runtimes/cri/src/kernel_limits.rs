//! What the kernel of this host can limit.

use std::path::Path;

use winddown_host::{huge_page_sizes, kernel};
use winddown_shared::error_chain;

use super::config::CriConfig;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KernelLimits {
    /// Whether control groups of version 2 limit memory.
    pub(super) has_unified_memory: bool,
    /// The sizes of huge pages in bytes; none where control groups do not limit these. CRI-O would start no container.
    pub(super) huge_pages: Vec<i64>,
}

impl KernelLimits {
    /// Reads a few files of the kernel's.
    pub(super) fn read(config: &CriConfig) -> Self {
        let mount = &config.cgroups.mount;
        // Version 1 has a hierarchy for each controller.
        let has_huge_pages = has_controller(mount, "hugetlb") || mount.join("hugetlb").is_dir();
        let sizes =
            if has_huge_pages { huge_page_sizes(&config.paths.sys) } else { Ok(Vec::new()) };
        let huge_pages = sizes.unwrap_or_else(|error| {
            tracing::warn!(
                error = error_chain(&error),
                "huge pages are limited only where a container says so"
            );
            Vec::new()
        });
        Self { has_unified_memory: has_controller(mount, "memory"), huge_pages }
    }
}

/// Whether control groups of version 2 have this controller.
pub(super) fn has_controller(mount: &Path, name: &str) -> bool {
    kernel::read_to_string(mount.join("cgroup.controllers"))
        .is_ok_and(|all| all.split_whitespace().any(|controller| controller == name))
}
