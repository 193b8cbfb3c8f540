//! The kubelet's configuration for shutdowns. Blocks.

use std::path::Path;

use crate::facts::KubeletConfig;

/// The configuration of the running kubelet, or else of the installed one.
pub(super) fn config(root: &Path, live: bool) -> Option<KubeletConfig> {
    let kubelet = winddown_kubelet::find(root, live).into_iter().next().unwrap_or_default();
    let said = kubelet.configuration(root)?;
    let change = kubelet.file_to_change(root, &said)?.display().to_string();
    let unit = kubelet.unit.unwrap_or_else(|| "kubelet.service".to_owned());
    let unit = unit.trim_end_matches(".service").to_owned();
    let of_file = |file: &Path| KubeletConfig {
        place: file.display().to_string(),
        file: change,
        unit,
        ..KubeletConfig::default()
    };
    if let Some((file, problem)) = said.problem {
        return Some(KubeletConfig { problem, ..of_file(&file) });
    }
    Some(match said.ends_pods() {
        Some(decides) => KubeletConfig {
            place: decides.to_string(),
            by_priority: !said.periods().groups.is_empty(),
            wanted: said.wanted(),
            enabled: decides.value,
            ..of_file(&decides.file)
        },
        None => of_file(said.files.first()?),
    })
}
