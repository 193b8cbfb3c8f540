//! The kubelet's configuration for shutdowns. Blocks.

use std::path::Path;

use winddown_kubelet::{Change, Periods};

use crate::facts::KubeletConfig;

/// The configuration of the running kubelet, or else of the installed one.
pub(super) fn config(root: &Path, live: bool) -> Option<KubeletConfig> {
    let kubelet = winddown_kubelet::find(root, live).into_iter().next().unwrap_or_default();
    let place = kubelet.unit_file(root).map(|file| file.display().to_string());
    let place = place.unwrap_or_else(|| kubelet.name());
    let unit = kubelet.unit.clone().unwrap_or_else(|| "kubelet.service".to_owned());
    let unit = unit.trim_end_matches(".service").to_owned();
    let Some(said) = kubelet.configuration(root) else {
        // A kubelet is there: that its configuration is not found does not mean that it has none.
        let problem = "no configuration of it was found".to_owned();
        return kubelet.is_known().then(|| KubeletConfig {
            place,
            unit,
            problem,
            ..KubeletConfig::default()
        });
    };
    if let Some(winddown_kubelet::Problem { file, why: problem }) = said.problem {
        let place = file.display().to_string();
        return Some(KubeletConfig {
            file: place.clone(),
            place,
            unit,
            problem,
            ..Default::default()
        });
    }
    let Change { file, is_new, lines, is_plain, .. } =
        kubelet.change(root, &said, &Periods::default())?;
    let of_file = |place: &Path| KubeletConfig {
        place: place.display().to_string(),
        file: file.display().to_string(),
        is_new,
        lines,
        is_plain,
        unit,
        ..KubeletConfig::default()
    };
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
