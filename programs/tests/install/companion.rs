//! Installs beside the kubelets of kubeadm, k3s and EKS, with their files on disk.

use std::fs;
use std::path::{Path, PathBuf};

use winddown_config::{Config, Mode, PriorityPeriod, ShutdownPeriods, ShutdownSettings};
use winddown_install::{
    Companion, InstallError, InstallOptions, InstallReport, UninstallOptions, install_on,
    uninstall_on,
};

use clap::Parser as _;
use winddown_cli::{Cli, Command};

use super::image::{Image, Locks, Recorder};
use crate::release::ASKED_BY_SCRIPTS;

const CONFIG: &str = "etc/winddown/config.yaml";
const KUBEADM: &str = "var/lib/kubelet/config.yaml";
/// What a kubelet's configuration says it is.
pub(crate) const HEAD: &str =
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const FLAGS: &str = "var/lib/kubelet/kubeadm-flags.env";
const K3S: &str = "var/lib/rancher/k3s/agent/etc/kubelet.conf.d";

/// A machine with a kubelet.
fn beside(kubelet: &str) -> Image {
    let image = Image::new();
    add(&image, kubelet);
    image
}

fn add(image: &Image, kubelet: &str) {
    copy(&laid_out(kubelet), image.root.path());
}

pub(crate) fn laid_out(kubelet: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kubelets").join(kubelet)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => fs::write(to, fs::read(entry.path()).unwrap()).unwrap(),
        }
    }
}

impl Image {
    fn options_beside(&self, companion: Companion) -> InstallOptions {
        InstallOptions { companion: Some(companion), ..self.options() }
    }

    fn install_beside(&self, companion: Companion) -> Result<InstallReport, InstallError> {
        install_on(&self.options_beside(companion), None)
    }

    /// As on a running machine.
    fn install_live(&self) -> InstallReport {
        let options = self.options_beside(Companion::default());
        install_on(&options, Some(&Recorder::default())).unwrap()
    }

    fn config(&self) -> Config {
        Config::parse(Path::new(CONFIG), self.read(CONFIG).as_bytes()).unwrap().0
    }

    pub(super) fn put(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn replace(&self, file: &str, from: &str, to: &str) {
        let text = self.read(file);
        assert!(text.contains(from), "{text}");
        self.put(file, &text.replace(from, to));
    }

    /// Returns the text of the report, without the root.
    fn said(&self, report: &InstallReport) -> String {
        report.to_string().replace(&self.root.path().display().to_string(), "")
    }
}

fn total(total: u64, critical: u64) -> ShutdownPeriods {
    let seconds = std::time::Duration::from_secs;
    ShutdownPeriods::Total { total: seconds(total), critical: seconds(critical) }
}

#[test]
fn the_configuration_has_what_the_kubelet_was_told() {
    let group = |priority, seconds| PriorityPeriod {
        priority,
        period: std::time::Duration::from_secs(seconds),
    };
    for (kubelet, kubeconfig, socket, name, periods) in [
        (
            "kubeadm",
            "/etc/kubernetes/kubelet.conf",
            "unix:///var/run/containerd/containerd.sock",
            None,
            total(90, 20),
        ),
        (
            "k3s",
            "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
            "unix:///run/k3s/containerd/containerd.sock",
            Some("edge-7"),
            ShutdownPeriods::ByPriority(vec![group(0, 45), group(2_000_000_000, 15)]),
        ),
        (
            "eks",
            "/var/lib/kubelet/kubeconfig",
            "unix:///run/containerd/containerd.sock",
            Some("ip-192-168-20-17.us-west-2.compute.internal"),
            total(150, 30),
        ),
    ] {
        let image = beside(kubelet);
        image.install_beside(Companion::default()).unwrap();
        let config = image.config();
        assert_eq!(config.node.mode, Mode::Companion);
        assert_eq!(config.cluster.kubeconfig.as_deref(), Some(Path::new(kubeconfig)), "{kubelet}");
        assert_eq!(config.node.container_runtime_endpoint, socket, "{kubelet}");
        assert_eq!(config.node.name.as_deref(), name, "{kubelet}");
        assert_eq!(config.shutdown, periods.into(), "{kubelet}: the kubelet's periods and order");
        let scope = "etc/systemd/system/cri-containerd-.scope.d/50-winddown.conf";
        assert!(image.path(scope).exists(), "{kubelet}");
    }
}

#[test]
fn a_kubelets_own_root_directory_is_found_and_that_of_others_is_the_usual() {
    for (kubelet, file, from, to) in [
        (
            "kubeadm",
            "var/lib/kubelet/kubeadm-flags.env",
            "ARGS=\"",
            "ARGS=\"--root-dir=/data/kubelet ",
        ),
        (
            "k3s",
            "etc/rancher/k3s/config.yaml",
            "node-name",
            "kubelet-arg: [v=2, root-dir=/data/kubelet]\nnode-name",
        ),
    ] {
        let image = beside(kubelet);
        let usual = Config::default().companion.kubelet_root_dir;
        image.install_beside(Companion::default()).unwrap();
        assert_eq!(image.config().companion.kubelet_root_dir, usual, "{kubelet}");

        image.replace(file, from, to);
        let report = image.install_beside(Companion::default()).unwrap();
        let differs =
            "kubeletRootDir: it says /var/lib/kubelet, by the kubelet it would be /data/kubelet";
        assert!(report.notes.iter().any(|note| note.ends_with(differs)), "{report}");
        fs::remove_file(image.path(CONFIG)).unwrap();
        image.install_beside(Companion::default()).unwrap();
        assert_eq!(
            image.config().companion.kubelet_root_dir,
            Path::new("/data/kubelet"),
            "{kubelet}"
        );
    }
}

#[test]
fn a_name_and_groups_that_the_kubelet_reads_in_its_own_way_mean_the_same_to_winddown() {
    for (kubelet, file, from, to, name) in [
        (
            "kubeadm",
            FLAGS,
            "ARGS=\"",
            "ARGS=\"--hostname-override=Node-A.Example ",
            Some("node-a.example"),
        ),
        ("kubeadm", FLAGS, "ARGS=\"", "ARGS=\"--hostname-override= ", None),
        ("k3s", "etc/rancher/k3s/config.yaml", "edge-7", "Edge-7", Some("edge-7")),
    ] {
        let image = beside(kubelet);
        image.replace(file, from, to);
        image.install_beside(Companion::default()).unwrap();
        assert_eq!(image.config().node.name.as_deref(), name, "{kubelet}: {to}");
    }
    let image = beside("kubeadm");
    image.replace(KUBEADM, "shutdownGracePeriod: 90s", "shutdownGracePeriod: 0s");
    image.replace(
        KUBEADM,
        "shutdownGracePeriodCriticalPods: 20s",
        "shutdownGracePeriodCriticalPods: 0s\nshutdownGracePeriodByPodPriority:\n\
         - {priority: 100, shutdownGracePeriodSeconds: 5}\n\
         - {priority: 0, shutdownGracePeriodSeconds: 7}\n\
         - {priority: 100, shutdownGracePeriodSeconds: 9}",
    );
    image.install_beside(Companion::default()).unwrap();
    let group = |priority, seconds| PriorityPeriod {
        priority,
        period: std::time::Duration::from_secs(seconds),
    };
    let groups = ShutdownPeriods::ByPriority(vec![group(0, 7), group(100, 9)]);
    assert_eq!(image.config().shutdown.periods(), groups);
}

#[test]
fn what_to_switch_off_is_said_with_file_and_fields_and_nothing_is_switched_off() {
    for (kubelet, decides, change, restart) in [
        (
            "kubeadm",
            "/var/lib/kubelet/config.yaml:33: shutdownGracePeriod: 90s",
            "set these fields in /var/lib/kubelet/config.yaml, so that only winddown terminates the pods:\n      \
             shutdownGracePeriod: 0s\n      shutdownGracePeriodCriticalPods: 0s\n      \
             shutdownGracePeriodByPodPriority: []\n",
            "systemctl restart kubelet",
        ),
        (
            "k3s",
            "10-shutdown.conf:3: shutdownGracePeriodByPodPriority has 2 groups",
            "write this to /var/lib/rancher/k3s/agent/etc/kubelet.conf.d/99-winddown.conf, so that only \
             winddown terminates the pods:\n      apiVersion: kubelet.config.k8s.io/v1beta1\n      \
             kind: KubeletConfiguration\n      shutdownGracePeriod: 0s\n      \
             shutdownGracePeriodCriticalPods: 0s\n      shutdownGracePeriodByPodPriority: []\n",
            "systemctl restart k3s",
        ),
        (
            "eks",
            "/etc/kubernetes/kubelet/config.json:34: shutdownGracePeriod: 2m30s",
            "      \"shutdownGracePeriod\": \"0s\",\n      \"shutdownGracePeriodCriticalPods\": \"0s\",\n      \
             \"shutdownGracePeriodByPodPriority\": [],\n  \
             /etc/kubernetes/kubelet/config.json: nodeadm of EKS writes it at each boot: make the change in \
             spec.kubelet.config of the node's NodeConfig as well\n",
            "systemctl restart kubelet",
        ),
    ] {
        let image = beside(kubelet);
        let report = image.install_live();
        let said = image.said(&report);
        assert!(said.contains(decides), "{said}");
        assert!(said.ends_with(&format!("{change}  {restart}\n  winddown doctor\n")), "{said}");
        let start = "\nNext:\n  systemctl enable winddown && systemctl restart winddown && winddown wait --for=lock\n";
        let off = said.find(change);
        assert!(said.find(start) < off, "in between nothing would terminate the pods: {said}");
        assert!(said.contains(start), "{said}");
        assert!(!image.path(super::image::WANTS).exists(), "two agents would terminate the pods");
        for file in [KUBEADM, "etc/kubernetes/kubelet/config.json", K3S] {
            let (file, before) = (image.path(file), laid_out(kubelet).join(file));
            if file.is_file() {
                assert_eq!(fs::read(file).unwrap(), fs::read(before).unwrap());
            } else if file.is_dir() {
                assert_eq!(fs::read_dir(file).unwrap().count(), 2);
            }
        }
    }
}

#[test]
fn a_trial_shows_the_next_steps_of_the_run() {
    for live in [true, false] {
        let image = beside("kubeadm");
        let host = Recorder::default();
        let host = live.then_some(&host as &dyn winddown_install::Host);
        let options = image.options_beside(Companion::default());
        let trial = InstallOptions { dry_run: true, ..options.clone() };
        let trial = install_on(&trial, host).unwrap();
        let run = install_on(&options, host).unwrap();
        let lines = |report: &InstallReport| {
            report.next.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(lines(&trial), lines(&run), "live: {live}");
    }
}

#[test]
fn who_installs_without_companion_beside_a_kubelet_is_told_that_its_pods_are_not_ended() {
    let note = "a kubelet is here (kubelet.service), and this agent would not terminate its pods";
    let image = beside("kubeadm");
    let said = image.said(&image.install().unwrap());
    assert!(said.contains(note) && said.contains("winddown install --companion"), "{said}");
    let image = beside("kubeadm");
    let said = image.said(&image.install_beside(Companion::default()).unwrap());
    assert!(!said.contains(note), "{said}");
    let options = InstallOptions { runtime: winddown_install::Runtime::Cri, ..image.options() };
    let said = image.said(&install_on(&options, None).unwrap());
    assert!(!said.contains(note), "its configuration says `mode: companion`: {said}");
}

#[test]
fn a_kubelet_that_ends_no_pods_needs_no_change_and_the_agent_is_enabled() {
    let image = beside("kubeadm");
    image.replace(KUBEADM, "shutdownGracePeriod: 90s", "shutdownGracePeriod: 0s");
    image.replace(KUBEADM, "CriticalPods: 20s", "CriticalPods: 0s");
    let report = image.install_live();
    let said = image.said(&report);
    assert!(said.contains("it leaves terminating its pods to others"), "{said}");
    let start =
        "systemctl enable winddown && systemctl restart winddown && winddown wait --for=lock";
    assert!(said.ends_with(&format!("Next:\n  {start}\n  winddown doctor\n")), "{said}");
    assert!(image.path(super::image::WANTS).symlink_metadata().is_ok());
    assert_eq!(image.config().shutdown.periods(), ShutdownSettings::default().periods());
    // Default periods choose no order: etcd terminates after the API server.
    assert_eq!(image.config().to_json()["shutdownOrder"], "role");
}

#[test]
fn what_a_kubelet_without_a_configuration_does_at_a_shutdown_is_not_guessed() {
    let image = beside("kubeadm");
    for file in ["var/lib/kubelet", "etc/systemd/system", "usr/lib/systemd/system"] {
        let _ = fs::remove_dir_all(image.path(file));
    }
    let kubeconfig = Some("/etc/kubernetes/kubelet.conf".into());
    let report = image.install_beside(Companion { kubeconfig, ..Companion::default() }).unwrap();
    let wanted =
        "no configuration of the kubelet was found: make sure that its shutdownGracePeriod is 0s";
    assert!(report.notes.iter().any(|note| note == wanted), "{report}");
}

#[test]
fn a_second_time_nothing_is_changed_before_and_after_the_kubelets_own_is_switched_off() {
    let image = beside("kubeadm");
    image.install_live();
    let (tree, text) = (image.tree(), image.read(CONFIG));
    let report = image.install_live();
    assert!(!report.changed(), "{report}");
    assert_eq!(image.tree(), tree);
    // After that its files have no periods, but the configuration keeps them.
    image.replace(KUBEADM, "shutdownGracePeriod: 90s", "shutdownGracePeriod: 0s");
    let report = image.install_live();
    assert_eq!(image.read(CONFIG), text);
    assert!(!report.to_string().contains("stays as it is"), "{report}");
}

#[test]
fn a_configuration_that_differs_is_never_overwritten_and_the_differences_are_said() {
    let image = beside("kubeadm");
    image.install_live();
    image.replace(CONFIG, "/etc/kubernetes/kubelet.conf", "/etc/mine.conf");
    image.replace(CONFIG, "shutdownGracePeriod: 90s", "shutdownGracePeriod: 2m");
    let text = image.read(CONFIG);
    let report = image.install_live();
    for line in [
        "kubeconfig: it says /etc/mine.conf, by the kubelet it would be /etc/kubernetes/kubelet.conf",
        "shutdownGracePeriod: it says 2m0s, by the kubelet it would be 1m30s",
    ] {
        assert!(report.notes.iter().any(|note| note.ends_with(line)), "{report}");
    }
    assert_eq!(image.read(CONFIG), text);
    // A configuration of another mode cannot be used, and nothing is installed.
    let image = beside("kubeadm");
    let other = "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nreportsKept: 7\n";
    image.put(CONFIG, other);
    let tree = image.tree();
    let error = image.install_beside(Companion::default()).unwrap_err();
    let InstallError::NoCompanion { source, .. } = &error else { panic!("{error:?}") };
    assert!(error.hint().contains("config.yaml.standalone`; then run the same command again"));
    assert!(
        source
            .to_string()
            .contains("mode: it says standalone, by the kubelet it would be companion")
    );
    assert_eq!((image.tree(), &*image.read(CONFIG)), (tree, other));
}

/// It comes with other words, and without what is new.
#[test]
fn a_default_of_an_earlier_version_makes_way() {
    let image = beside("kubeadm");
    let older = winddown_config::default_yaml().replace("\n# ", "\n# As it was: ");
    let older = older.replace("\nreportsKept: 20\n", "\n");
    image.put(CONFIG, &older);
    let report = image.install_beside(Companion::default()).unwrap();
    assert_eq!(image.config().node.mode, Mode::Companion);
    // The other words may be the operator's.
    let (kept, note) = (format!("{CONFIG}.before-winddown"), "the old configuration is kept as /");
    assert_eq!(image.read(&kept), older);
    assert!(image.said(&report).contains(&format!("Note: {note}{kept}\n")), "{report}");
    // What was kept is not lost to the next one, and that one is not either.
    let chosen = older + "# Ours\nruntime: systemd\n";
    let chosen = chosen.replacen("\nruntime: process\n", "\n", 1);
    image.put(CONFIG, &chosen);
    let error = image.install_beside(Companion::default()).unwrap_err();
    assert!(error.hint().contains("config.yaml.standalone"), "{error}");
    assert_eq!(image.read(CONFIG), chosen);
    fs::remove_file(image.path(&kept)).unwrap();
    image.install_beside(Companion::default()).unwrap();
    assert_eq!((image.read(&kept), image.config().node.mode), (chosen, Mode::Companion));
}

/// A package installs such a configuration.
#[test]
fn a_default_that_was_not_edited_makes_way() {
    let image = beside("kubeadm");
    image.package();
    image.put(CONFIG, winddown_config::default_yaml());
    image.install_beside(Companion::default()).unwrap();
    assert_eq!(image.config().node.mode, Mode::Companion);
    // As the agent keeps it: without it, no later agent is a companion.
    let last = winddown_config::LAST_IN_FORCE.trim_start_matches('/');
    image.put(last, &image.read(CONFIG));
    // Nothing of the package is removed.
    uninstall_on(&image.removal(false), None).unwrap();
    assert!(
        !image.path(CONFIG).exists()
            && !image.path(last).exists()
            && image.path("usr/lib/systemd/system/winddown.service").exists()
    );
}

#[test]
fn it_takes_away_what_it_made_and_says_how_the_kubelet_ends_its_pods_again() {
    for (kubelet, file, says) in [
        (
            "kubeadm",
            KUBEADM,
            "set these fields in /var/lib/kubelet/config.yaml, so that the kubelet terminates its pods in order:\n      \
             shutdownGracePeriod: 90s\n      shutdownGracePeriodCriticalPods: 20s\n      \
             shutdownGracePeriodByPodPriority: []\n  systemctl restart kubelet\n",
        ),
        (
            "k3s",
            "var/lib/rancher/k3s/agent/etc/kubelet.conf.d/99-winddown.conf",
            "      shutdownGracePeriodByPodPriority: [{\"priority\": 0, \"shutdownGracePeriodSeconds\": 45}, \
             {\"priority\": 2000000000, \"shutdownGracePeriodSeconds\": 15}]\n  systemctl restart k3s\n",
        ),
    ] {
        let image = beside(kubelet);
        // Its processes can be seen, and none is a kubelet.
        image.put("proc/1/comm", "systemd\n");
        let before = image.tree();
        image.install_live();
        // The operator follows the advice: systemctl enables the unit.
        let off = "shutdownGracePeriod: 0s\nshutdownGracePeriodByPodPriority: []\n";
        image.put(file, &format!("{HEAD}{off}"));
        let wants = image.path(super::image::WANTS);
        fs::create_dir_all(wants.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink("/etc/systemd/system/winddown.service", &wants).unwrap();
        // Until the kubelet ends its pods itself, they keep the one who does.
        let (tree, host) = (image.tree(), Recorder::default());
        let refused = uninstall_on(&image.removal(false), Some(&host)).unwrap_err().to_string();
        let refused = refused.replace(&image.root.path().display().to_string(), "");
        assert!(refused.contains(says), "{refused}");
        assert!(
            refused.ends_with("  winddown uninstall\n--force uninstalls all the same"),
            "{refused}"
        );
        assert_eq!((image.tree(), host.0.borrow().len()), (tree, 0), "{kubelet}");
        let forced = UninstallOptions { force: true, ..image.removal(false) };
        let report = uninstall_on(&forced, Some(&host)).unwrap();
        let said = image.said(&report);
        assert!(said.ends_with(says), "{said}");
        // Directories that systemctl created stay.
        for made in ["/system/multi-user.target.wants", "/system", ""] {
            let _ = fs::remove_dir(image.path(&format!("etc/systemd{made}")));
        }
        let theirs = |line: &String| !line.contains("99-winddown");
        let left: Vec<String> = image.tree().into_iter().filter(theirs).collect();
        assert_eq!(left, before, "{said}");
        assert!(wants.symlink_metadata().is_err());
    }
    // There is no advice for a kubelet that stops its pods itself.
    let image = beside("kubeadm");
    image.install_live();
    assert!(image.uninstall(false).next.is_empty());
    // An edited file stays.
    let image = beside("kubeadm");
    image.install_live();
    image.replace(CONFIG, "shutdownGracePeriod: 90s", "shutdownGracePeriod: 2m");
    assert!(image.uninstall(false).to_string().contains("changed since it was installed"));
    assert!(image.path(CONFIG).exists());
}

/// What an agent was is known without its file, and without either of the two it may have been a companion.
#[test]
fn a_companion_whose_configuration_is_lost_or_wrong_stays_as_long_as_with_a_good_one() {
    let last = winddown_config::LAST_IN_FORCE.trim_start_matches('/');
    for (kept, wrong) in [(true, true), (true, false), (false, true), (false, false)] {
        let image = beside("kubeadm");
        image.install_live();
        if kept {
            image.put(last, &image.read(CONFIG));
        }
        image.replace(KUBEADM, "shutdownGracePeriod: 90s", "shutdownGracePeriod: 0s");
        image.replace(KUBEADM, "CriticalPods: 20s", "CriticalPods: 0s");
        match wrong {
            true => image.replace(CONFIG, "shutdownGracePeriod:", "shutdownGracePeriot:"),
            false => fs::remove_file(image.path(CONFIG)).unwrap(),
        }
        let tree = image.tree();
        for dry_run in [true, false] {
            let options = UninstallOptions { dry_run, ..image.removal(false) };
            let refused = uninstall_on(&options, Some(&Locks(Some(false)))).unwrap_err();
            let text = refused.to_string();
            let total = if kept { 90 } else { 60 };
            let wanted = format!("shutdownGracePeriod: {total}s\n");
            assert!(text.contains(&wanted), "kept {kept}, wrong {wrong}, dry {dry_run}: {text}");
            assert_eq!(image.tree(), tree);
        }
    }
    // No kubelet is here: whose pods could be left?
    let image = Image::new();
    image.install().unwrap();
    fs::remove_file(image.path(CONFIG)).unwrap();
    uninstall_on(&image.removal(false), Some(&Locks(Some(false)))).unwrap();
}

/// A package manager is not refused as `winddown uninstall` is, and its scripts read only the report.
#[test]
fn what_a_packages_scripts_ask_is_answered_with_the_way_back_and_changes_nothing() {
    let image = beside("kubeadm");
    image.put("proc/1/comm", "systemd\n");
    image.install_live();
    image.put(KUBEADM, &format!("{HEAD}shutdownGracePeriod: 0s\n"));
    let typed = std::iter::once("winddown").chain(ASKED_BY_SCRIPTS.split(' '));
    let Command::Uninstall(args) = Cli::parse_from(typed).command else {
        panic!("{ASKED_BY_SCRIPTS}")
    };
    let options =
        UninstallOptions { force: args.force, dry_run: args.dry_run, ..image.removal(args.purge) };
    let (tree, host) = (image.tree(), Recorder::default());
    let said = image.said(&uninstall_on(&options, Some(&host)).unwrap());
    let (_, steps) = said.split_once("\nNext:\n").unwrap_or_else(|| panic!("{said}"));
    assert!(steps.contains("shutdownGracePeriod: 90s\n"), "{said}");
    assert!(steps.ends_with("systemctl restart kubelet\n"), "{said}");
    assert_eq!((image.tree(), host.0.borrow().len()), (tree, 0), "{said}");
}

/// A kubelet of kubeadm that runs with 90 s, and its companion.
fn beside_running() -> Image {
    let image = beside("kubeadm");
    image.install_live();
    let own = rustix::process::geteuid().as_raw();
    for (file, text) in [
        ("comm", "kubelet\n"),
        (
            "cmdline",
            "kubelet\0--config=/var/lib/kubelet/config.yaml\0--kubeconfig=/etc/kubernetes/kubelet.conf\0",
        ),
        ("status", &format!("Uid:\t{own}\t{own}\t{own}\t{own}\n")),
        ("cgroup", "0::/system.slice/kubelet.service\n"),
    ] {
        image.put(&format!("proc/9/{file}"), text);
    }
    image
}

/// The periods are as they should be, and count for nothing: the gate is the step, not the periods.
#[test]
fn a_kubelet_whose_gate_is_off_gets_its_pods_back_once_the_gate_is_gone() {
    let in_file = "featureGates:\n  GracefulNodeShutdown: false\n";
    let of_file =
        "remove GracefulNodeShutdown: false from featureGates in /var/lib/kubelet/config.yaml";
    let of_option = "remove GracefulNodeShutdown=false from --feature-gates of kubelet.service";
    for (in_file, option, step) in
        [(in_file, "", of_file), ("", "\0--feature-gates=GracefulNodeShutdown=false", of_option)]
    {
        let image = beside_running();
        image.put(KUBELETS_DELAY, "[Login]\nInhibitDelayMaxSec=90\n");
        let (config, command) = (image.read(KUBEADM), image.read("proc/9/cmdline"));
        image.put(KUBEADM, &format!("{config}{in_file}"));
        image.put("proc/9/cmdline", &format!("{command}{option}"));
        let host = Locks(Some(true));
        let refused = uninstall_on(&image.removal(false), Some(&host)).unwrap_err().to_string();
        let refused = refused.replace(&image.root.path().display().to_string(), "");
        let steps =
            format!("First:\n  {step}\n  systemctl restart kubelet\n  winddown uninstall\n");
        assert!(refused.contains(&steps), "{refused}");
        image.put(KUBEADM, &config);
        image.put("proc/9/cmdline", &command);
        uninstall_on(&image.removal(false), Some(&host)).unwrap();
    }
}

/// What the file says is in force only from the next start of the kubelet.
#[test]
fn a_companion_stays_until_the_kubelet_holds_its_own_lock() {
    for (lock, wanted) in [
        (Some(false), Some("First:\n  systemctl restart kubelet\n  winddown uninstall\n")),
        (Some(true), None),
        (None, None),
    ] {
        let image = beside_running();
        image.put(KUBELETS_DELAY, "[Login]\nInhibitDelayMaxSec=90\n");
        let done = uninstall_on(&image.removal(false), Some(&Locks(lock)));
        match (done, wanted) {
            (Err(error), Some(wanted)) => {
                let text = error.to_string();
                assert!(text.contains(wanted), "{text}");
                let seen = "seen: logind lists no lock of the kubelet, though its files set one";
                assert!(text.contains(seen), "{text}");
            }
            (done, wanted) => assert_eq!(done.is_ok(), wanted.is_none(), "{lock:?}"),
        }
    }
}

const KUBELETS_DELAY: &str = "etc/systemd/logind.conf.d/99-kubelet.conf";

/// A kubelet raises logind's delay only where nothing else has: the file of winddown that has goes with it.
#[test]
fn a_companion_stays_until_logind_waits_as_long_as_the_kubelet_needs_without_it() {
    for (file, seconds, is_enough) in [
        ("", 0, false),
        ("etc/systemd/logind.conf.d/zz-winddown.conf", 92, false),
        ("run/systemd/logind.conf.d/zz-winddown.conf", 92, false),
        (KUBELETS_DELAY, 30, false),
        (KUBELETS_DELAY, 90, true),
        ("usr/lib/systemd/logind.conf.d/unattended-upgrades.conf", 1800, true),
    ] {
        let image = beside_running();
        let text = format!("# winddown\n[Login]\nInhibitDelayMaxSec={seconds}\n");
        if !file.is_empty() {
            image.put(file, &text);
        }
        let done = uninstall_on(&image.removal(false), Some(&Locks(Some(true))));
        assert_eq!(done.is_ok(), is_enough, "{file}: {seconds}");
        if let Err(error) = done {
            let command = "mkdir -p /etc/systemd/logind.conf.d && printf \
                           '[Login]\\nInhibitDelayMaxSec=90\\n' >/etc/systemd/logind.conf.d/99-kubelet.conf";
            let wanted = format!("First:\n  {command}\n  winddown uninstall\n");
            assert!(error.to_string().contains(&wanted), "{error}");
        }
    }
}

/// It runs in a scope of podman's, say, and reads its file only as it starts again.
#[test]
fn the_delay_is_raised_for_a_kubelet_of_which_nobody_can_say_whether_it_runs() {
    let image = beside_running();
    image.put("run/systemd/system/x.conf", "");
    image.put("proc/9/cgroup", "0::/machine.slice/libpod-a.scope\n");
    image.put(KUBEADM, &format!("{HEAD}shutdownGracePeriod: 90s\n"));
    image.put("etc/systemd/logind.conf.d/zz-winddown.conf", "[Login]\nInhibitDelayMaxSec=92\n");
    let refused = uninstall_on(&image.removal(false), Some(&Locks(Some(false)))).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains(">/etc/systemd/logind.conf.d/99-kubelet.conf\n  systemctl restart kubelet\n"),
        "{text}"
    );
}

/// Stock Ubuntu has one, and the kubelet's file loses to it (kubernetes/kubernetes#102818).
#[test]
fn the_step_that_raises_the_delay_does_so_beside_a_drop_in_whose_name_is_later() {
    const NAME: &str = "systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf";
    let (vendors, sites) = (format!("usr/lib/{NAME}"), format!("etc/{NAME}"));
    for (file, kubelets) in [
        (&*vendors, None),
        (&*vendors, Some(90)),
        (&*sites, None),
        ("etc/systemd/logind.conf", None),
    ] {
        let image = beside_running();
        image.put(
            "etc/systemd/logind.conf.d/zz-winddown.conf",
            "# winddown\n[Login]\nInhibitDelayMaxSec=92\n",
        );
        image.put(file, "[Login]\nInhibitDelayMaxSec=30\nIdleAction=ignore\n");
        if let Some(seconds) = kubelets {
            image.put(KUBELETS_DELAY, &format!("[Login]\nInhibitDelayMaxSec={seconds}\n"));
        }
        let host = Locks(Some(true));
        let refused = uninstall_on(&image.removal(false), Some(&host)).unwrap_err().to_string();
        let mut steps = refused.split_once("First:\n").unwrap().1.lines().map(str::trim);
        let step = steps.next().unwrap();
        assert_eq!(steps.next(), Some("winddown uninstall"), "{refused}");
        let root = image.root.path().display();
        let here = step.replace("/etc/", &format!("{root}/etc/"));
        let here = here.replace("/usr/lib/", &format!("{root}/usr/lib/"));
        let done = std::process::Command::new("sh").args(["-ec", &here]).status().unwrap();
        assert!(done.success(), "{here}");
        uninstall_on(&image.removal(false), Some(&host)).unwrap();
        let set = winddown_systemd::drop_in::find(image.root.path()).unwrap();
        assert_eq!(set.value.as_secs(), 90, "{step}: {set:?}");
        if !set.file.ends_with("99-kubelet.conf") {
            let text = image.read(&set.file.to_string_lossy()[1..]);
            assert!(text.contains("IdleAction=ignore"), "{step}: what else it says stays");
        }
    }
}

#[test]
fn where_more_than_one_could_be_meant_all_are_named_with_the_option_that_chooses() {
    let error = |image: &Image, companion| {
        let error = image.install_beside(companion).unwrap_err();
        format!("{error}; {}", error.hint())
    };
    let kubelet = |name: &str| Companion { kubelet: Some(name.to_owned()), ..Companion::default() };
    let image = beside("kubeadm");
    add(&image, "k3s");
    let tree = image.tree();
    let said = error(&image, Companion::default());
    assert_eq!(
        said,
        "more than one kubelet is here: kubelet.service, k3s.service; choose one: `winddown install \
         --companion --kubelet kubelet.service`"
    );
    let said = error(&image, kubelet("crio"));
    assert_eq!(
        said,
        "there is no kubelet crio here; there is kubelet.service, k3s.service; \
         name one of these with --kubelet"
    );
    assert_eq!(image.tree(), tree, "nothing is installed");
    image.install_beside(kubelet("k3s")).unwrap();
    assert_eq!(image.config().node.name.as_deref(), Some("edge-7"));

    // Without units, the kubelet is found by its credentials, and the runtime by its socket.
    let image = Image::new();
    assert!(error(&image, Companion::default()).contains("--kubeconfig FILE"));
    image.put("var/lib/kubelet/kubeconfig", "");
    image.put("etc/kubernetes/kubelet.conf", "");
    image.put("run/crio/crio.sock", "");
    let said = error(&image, Companion::default());
    assert!(said.contains("/etc/kubernetes/kubelet.conf, /var/lib/kubelet/kubeconfig"), "{said}");
    let chosen = Companion {
        kubeconfig: Some("/etc/kubernetes/kubelet.conf".into()),
        ..Companion::default()
    };
    image.put("run/containerd/containerd.sock", "");
    let said = error(&image, chosen.clone());
    assert!(
        said.contains("--container-runtime-endpoint unix:///run/containerd/containerd.sock"),
        "{said}"
    );
    fs::remove_file(image.path("run/containerd/containerd.sock")).unwrap();
    image.install_beside(chosen).unwrap();
    let config = image.config();
    assert_eq!(config.node.container_runtime_endpoint, "unix:///run/crio/crio.sock");
    assert_eq!(config.cluster.kubeconfig, Some("/etc/kubernetes/kubelet.conf".into()));
}

#[test]
fn a_kubelet_whose_files_cannot_be_read_stops_the_installation() {
    let image = beside("kubeadm");
    image.put(KUBEADM, "a: [");
    let tree = image.tree();
    let error = image.install_beside(Companion::default()).unwrap_err().to_string();
    let wanted = "the kubelet's configuration /var/lib/kubelet/config.yaml:1:4 cannot be read: ";
    assert!(error.starts_with(wanted), "{error}");
    assert_eq!(image.tree(), tree);
}

/// What is wrong is named where it is: our own file is not there yet.
#[test]
fn a_value_that_is_refused_is_named_where_it_comes_from() {
    let image = beside("kubeadm");
    image.replace(KUBEADM, "shutdownGracePeriod: 90s", "shutdownGracePeriod: ninety");
    let error = image.install_beside(Companion::default()).unwrap_err();
    let wanted = "/var/lib/kubelet/config.yaml:33: shutdownGracePeriod: duration \"ninety\"";
    assert!(error.to_string().starts_with(wanted), "{error}");
    assert_eq!(error.hint(), "correct it and run the same command again");
    let image = beside("kubeadm");
    let asked = Companion { endpoint: Some("http://x:1".into()), ..Companion::default() };
    let error = image.install_beside(asked).unwrap_err().to_string();
    assert!(error.contains("containerRuntimeEndpoint: `http://x:1`"), "{error}");
    assert!(!error.contains("etc/winddown"), "{error}");
}

#[test]
fn a_kubeconfig_that_is_no_file_is_refused_and_not_waited_for() {
    let image = beside("kubeadm");
    let made = std::process::Command::new("mkfifo").arg(image.path("etc/pipe")).status();
    assert!(made.unwrap().success());
    let asked = Companion { kubeconfig: Some("/etc/pipe".into()), ..Companion::default() };
    let error = image.install_beside(asked).unwrap_err().to_string();
    assert_eq!(error, "the kubeconfig /etc/pipe is not used: it is a pipe, not a regular file");
}

/// `kubeadm join` writes the configuration and the credentials of the kubelet; no package has either.
#[test]
fn the_agent_is_enabled_before_the_node_has_joined() {
    let image = beside("kubeadm");
    fs::remove_file(image.path("etc/kubernetes/kubelet.conf")).unwrap();
    for has_configuration in [true, false] {
        if !has_configuration {
            fs::remove_file(image.path(KUBEADM)).unwrap();
        }
        let report = image.install_live();
        let notes = [
            "/etc/kubernetes/kubelet.conf is not there yet: the agent reads it as soon as the node has joined its cluster",
            "/var/lib/kubelet/config.yaml is not there yet, and may set grace periods: run this command again once the \
             node has joined",
        ];
        for (note, wanted) in notes.into_iter().zip([true, !has_configuration]) {
            assert_eq!(report.notes.iter().any(|said| said == note), wanted, "{note}\n{report}");
        }
    }
    assert!(image.path(super::image::WANTS).symlink_metadata().is_ok());
    // A node that has joined has one: that it is not there is a mistake.
    image.put("etc/kubernetes/kubelet.conf", "");
    let error = image.install_beside(Companion::default()).unwrap_err().to_string();
    assert!(error.contains("/var/lib/kubelet/config.yaml"), "{error}");
}

/// GKE's has a command below /home, which the unit hides from the agent.
#[test]
fn what_the_kubeconfig_names_and_the_units_sandbox_hides_is_said_with_the_drop_in() {
    let image = beside("kubeadm");
    let kubeconfig = "etc/kubernetes/kubelet.conf";
    let said = |user: &str| {
        image.put(
            kubeconfig,
            &format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
                 contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n\
                 clusters: [{{name: c, cluster: {{server: 'https://10.0.0.1'}}}}]\n\
                 users: [{{name: u, user: {user}}}]\n"
            ),
        );
        image.install_beside(Companion::default()).unwrap().to_string()
    };
    let v1 = "client.authentication.k8s.io/v1";
    for (user, path, setting) in [
        (
            format!("{{exec: {{apiVersion: {v1}, command: /home/kubernetes/bin/login}}}}"),
            "users.exec.command: winddown.service does not see /home/kubernetes/bin/login",
            "ProtectHome=read-only",
        ),
        (
            "{client-certificate: /root/a.crt, client-key: /etc/a.key}".to_owned(),
            "users.client-certificate: winddown.service does not see /root/a.crt",
            "ProtectHome=read-only",
        ),
        (
            "{tokenFile: /var/tmp/token}".to_owned(),
            "users.tokenFile: winddown.service does not see /var/tmp/token",
            "PrivateTmp=no",
        ),
    ] {
        let said = said(&user);
        assert!(said.contains(path) && said.contains(setting), "{said}");
        assert!(!said.contains("a.key"), "{said}");
    }
    assert!(!said("{tokenFile: /etc/token}").contains("does not see"));
    // What the operator has written is seen.
    image.put(
        "etc/systemd/system/winddown.service.d/override.conf",
        "[Service]\nProtectHome=read-only\n",
    );
    assert!(!said("{tokenFile: /root/token}").contains("does not see"));
}

#[test]
fn a_kubelet_behind_a_proxy_is_named_as_winddown_uses_none() {
    let image = beside("kubeadm");
    let drop_in = "etc/systemd/system/kubelet.service.d/proxy.conf";
    image.put(
        drop_in,
        "[Service]\nEnvironment=HTTPS_PROXY=http://u:secret@p:3128 NO_PROXY=10.0.0.0/8\n",
    );
    let report = image.install_live();
    let note = "kubelet.service sets HTTPS_PROXY, and winddown uses no proxy: it has to reach the API server without one";
    assert!(report.notes.iter().any(|said| said == note), "{report}");
    assert!(!report.to_string().contains("secret"), "{report}");
    fs::remove_file(image.path(drop_in)).unwrap();
    assert!(!image.install_live().to_string().contains("proxy"));
}

/// It would stop after its kubelet, and start while both terminate the pods.
#[test]
fn an_installation_that_is_repeated_without_saying_so_is_a_companions_still() {
    const DROP_IN: &str = "etc/systemd/system/winddown-order.target.d/50-kubelet.conf";
    let image = beside("kubeadm");
    let units = image.path("usr/lib/systemd/system");
    for file in ["kubelet.service", "kubelet.service.d"] {
        fs::rename(units.join(file), units.join(file.replace("kubelet", "node-agent"))).unwrap();
    }
    image.install_live();
    let before = image.read(DROP_IN);
    let options = InstallOptions { runtime: winddown_install::Runtime::Cri, ..image.options() };
    let report = install_on(&options, Some(&Recorder::default())).unwrap();
    assert!(image.path(DROP_IN).exists() && image.read(DROP_IN) == before, "{report}");
    assert!(!image.path(super::image::WANTS).exists(), "two agents would terminate the pods");
    let note = "/etc/winddown/config.yaml says `mode: companion`: this is as with --companion";
    assert!(report.notes.iter().any(|said| said == note), "{report}");
    assert!(report.to_string().contains("  systemctl restart node-agent\n"), "{report}");
    // Another runtime is another agent: that stops at the configuration, as before.
    let process = InstallOptions { runtime: winddown_install::Runtime::Process, ..options };
    let refused = install_on(&process, None).unwrap_err().to_string();
    assert!(refused.contains("config.yaml"), "{refused}");
    assert!(image.path(DROP_IN).exists());
}

/// Whoever did not ask for a companion is told who does, and with which command it has its kubelet.
#[test]
fn a_companion_by_its_file_alone_whose_kubelet_is_not_found_is_refused_with_the_file() {
    let image = Image::new();
    fs::create_dir_all(image.path("etc/winddown")).unwrap();
    let text =
        "apiVersion: winddown.dev/v1alpha1\nkind: Configuration\nmode: companion\nruntime: cri\n";
    fs::write(image.path("etc/winddown/config.yaml"), text).unwrap();
    let options = InstallOptions { runtime: winddown_install::Runtime::Cri, ..image.options() };
    let refused = install_on(&options, None).unwrap_err();
    let said = refused.to_string();
    let why = "/etc/winddown/config.yaml says `mode: companion`, and no kubelet found: ";
    assert!(said.contains(why), "{said}");
    assert!(refused.hint().contains("`winddown install --companion --kubeconfig FILE`"));
}

#[test]
fn the_agent_stops_before_a_kubelet_whose_unit_has_a_name_of_its_own() {
    const DROP_IN: &str = "etc/systemd/system/winddown-order.target.d/50-kubelet.conf";
    let image = beside("kubeadm");
    image.install_beside(Companion::default()).unwrap();
    assert!(!image.path(DROP_IN).exists(), "the target names that unit already");
    let units = image.path("usr/lib/systemd/system");
    for file in ["kubelet.service", "kubelet.service.d"] {
        let renamed = file.replace("kubelet", "node-agent");
        fs::rename(units.join(file), units.join(renamed)).unwrap();
    }
    for packaged in [false, true] {
        if packaged {
            image.package();
        }
        image.install_beside(Companion::default()).unwrap();
        let text = image.read(DROP_IN);
        assert!(text.ends_with("\n[Unit]\nAfter=node-agent.service\n"), "{text}");
        uninstall_on(&image.removal(false), None).unwrap();
        assert!(!image.path(DROP_IN).exists());
    }
}
