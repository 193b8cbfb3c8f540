//! The kubelet of a machine: its processes, its unit, its configuration for shutdowns. Blocks.

use std::io;
use std::path::Path;
use std::time::Duration;

use winddown_companion::kubelet::processes::{KubeletProcess, NamedKubelets, Stranger, kubelets};
use winddown_companion::kubelet::{
    self, CommonSettings, Kubelet, KubeletChange, Periods, SettingDifference, of_agent,
};
use winddown_config::{Config, Mode};
use winddown_host::in_root;

use super::{MOST_PROCESSES, not_observed};
use crate::facts::{Fact, KubeletConfig, KubeletOnDisk, NotObserved};

impl KubeletOnDisk {
    /// Nothing could be seen, for this reason.
    pub(super) fn unseen(kind: NotObserved, why: &str) -> Self {
        Self {
            processes: Fact::Unknown(kind, why.to_owned()),
            unit: Fact::Unknown(kind, why.to_owned()),
            config: Fact::Unknown(kind, why.to_owned()),
            differences: Vec::new(),
        }
    }

    /// Looks below `root`, and at processes only if that is the root of the running machine. `ours`: the configuration of
    /// the agent.
    pub(crate) fn look(root: &Path, live: bool, ours: &Config) -> Self {
        let processes = match live.then(|| running(root)) {
            None => Fact::not_live(),
            Some(Ok(found)) => found,
            Some(Err(error)) => not_observed(&error, &root.join("proc")),
        };
        let found = kubelet::find(root, live);
        let unit = match live {
            true => kubelet::enabled_unit(root, &found),
            false => found.iter().find_map(|found| found.unit.clone()),
        };
        let kubelet = of_agent(found, ours.cluster.kubeconfig.as_deref()).unwrap_or_default();
        Self {
            processes,
            unit: Fact::Known(unit),
            config: Fact::Known(config(root, &kubelet)),
            differences: differences(root, live, ours, &kubelet),
        }
    }
}

/// The running kubelets. Unknown if there is none but a process of root's that may be one.
fn running(root: &Path) -> io::Result<Fact<Vec<KubeletProcess>>> {
    // Every user can start processes of any name.
    let NamedKubelets { mut kubelets, strangers } = kubelets(root)?;
    kubelets.truncate(MOST_PROCESSES);
    let unclear = strangers.into_iter().find(|(_, why)| *why == Stranger::InNoService);
    Ok(match unclear.filter(|_| kubelets.is_empty()) {
        None => Fact::Known(kubelets),
        Some((process, why)) => {
            let said = format!("process {} ({}) may be one: {why}", process.pid, process.name);
            Fact::Unknown(NotObserved::Failed, said)
        }
    })
}

/// The total time that this configuration gives to pods, zero if none; `None` if its text cannot be understood.
pub(crate) fn wants(config: &KubeletConfig) -> Option<Duration> {
    match config.enabled.is_empty() {
        true => Some(Duration::ZERO),
        false => Some(config.wanted).filter(|wanted| !wanted.is_zero()),
    }
}

fn config(root: &Path, kubelet: &Kubelet) -> Option<KubeletConfig> {
    let proxy = kubelet.proxy_variable(root).unwrap_or_default();
    Some(KubeletConfig { proxy, ..of_files(root, kubelet)? })
}

/// Where a companion's configuration differs from what the kubelet is told.
fn differences(
    root: &Path,
    live: bool,
    ours: &Config,
    kubelet: &Kubelet,
) -> Vec<SettingDifference> {
    if ours.node.mode != Mode::Companion {
        return Vec::new();
    }
    let host_name = live.then(winddown_host::machine::node_name);
    let kubelets = kubelet.common_settings(root, host_name.as_deref());
    CommonSettings::of_companion(
        ours.node.name.as_deref(),
        host_name.as_deref(),
        &ours.node.container_runtime_endpoint,
        &ours.companion.kubelet_root_dir,
    )
    .differences(root, &kubelets)
}

/// What the kubelet's files say of shutdowns.
fn of_files(root: &Path, kubelet: &Kubelet) -> Option<KubeletConfig> {
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
    if let Some(problem) = said.problem {
        return Some(KubeletConfig {
            file: problem.file.display().to_string(),
            place: problem.place(),
            unit,
            problem: problem.why,
            ..Default::default()
        });
    }
    let KubeletChange { file, is_new, lines, is_plain, rewritten } =
        kubelet.change(root, &said, &Periods::default())?;
    // In an image a link may be absolute, which a command that is typed here would follow on this machine.
    let leads_to = |file: &Path| {
        let place = in_root(root, file);
        let inside = place.strip_prefix(root).unwrap_or(&place);
        Path::new("/").join(inside).display().to_string()
    };
    let of_file = |place: &Path| KubeletConfig {
        place: place.display().to_string(),
        file: leads_to(&file),
        is_new,
        lines,
        is_plain,
        rewritten,
        unit,
        gate: kubelet.gate_to_remove(root, &said).unwrap_or_default(),
        ..KubeletConfig::default()
    };
    Some(match said.ends_pods() {
        Some(decides) => KubeletConfig {
            place: decides.to_string(),
            wanted: said.wanted(),
            enabled: decides.value,
            ..of_file(&decides.file)
        },
        // The gate has a place of its own.
        None => match said.period.as_ref().filter(|_| said.off_by_gate.is_none()) {
            Some(period) => KubeletConfig { place: period.to_string(), ..of_file(&period.file) },
            None => of_file(said.files.first()?),
        },
    })
}
