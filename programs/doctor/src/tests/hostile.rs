//! Observations forged by an attacker, or of a node in a bad state.

use super::*;
use winddown_control::api::ManifestProblem;
use winddown_render::View;

#[test]
fn huge_lists_and_long_texts_are_cut_and_counted() {
    let mut facts = healthy();
    let endless = "x".repeat(1 << 14);
    let locks = &mut known(&mut facts.bus.login).locks;
    locks.splice(0..0, (0..100_000).map(|_| lock("somebody")));
    known(&mut facts.bus.service)
        .after
        .extend((0..100_000).map(|number| format!("{number}.service")));
    facts.runtime.killers = Fact::Known(
        (0..10_000).map(|pid| KubeletProcess { pid, name: "earlyoom".to_owned() }).collect(),
    );
    known(&mut facts.agent).manifests.problems = (0..200)
        .map(|number| ManifestProblem {
            file: format!("{number}.yaml"),
            message: endless.clone(),
            ..ManifestProblem::default()
        })
        .collect();
    facts.config.read = ConfigRead::Invalid(vec![endless; 1000]);
    let found = findings(&facts);
    for finding in &found {
        assert!(finding.evidence.len() <= 8, "{}", finding.id);
        assert!(finding.evidence.iter().all(|line| line.chars().count() <= 401), "{}", finding.id);
    }
    let oom = found.iter().find(|finding| finding.id == "oom").unwrap();
    assert_eq!(oom.evidence.last().map(String::as_str), Some("and 9993 more"));
    let manifests = found.iter().find(|finding| finding.id == "manifests").unwrap();
    assert_eq!(manifests.evidence.last().map(String::as_str), Some("and 193 more"));
    assert_eq!(manifests.advice[0], "`winddown status -o wide` lists them all");
    let lock = found.iter().find(|finding| finding.id == "lock").unwrap();
    assert_eq!(lock.severity, Severity::Ok, "ours is found among all others");
}

#[test]
fn texts_from_elsewhere_cannot_rewrite_the_screen() {
    let mut facts = healthy();
    let evil = "\x1b[2J\u{202e}\nok".to_owned();
    facts.node = evil.clone();
    known(&mut facts.agent).runtime.healthy = false;
    known(&mut facts.agent).runtime.message = evil.clone();
    known(&mut facts.agent).runtime.name = evil.clone();
    let mut short = healthy();
    short.files.setting = set("/usr/lib/systemd/logind.conf.d/zzz\x1b[2J.conf", 1);
    known(&mut short.bus.login).delay = secs(1);
    for facts in [facts, short] {
        let diagnosis = diagnose(&facts);
        let text = render(&diagnosis, &View::default());
        assert!(!text.contains('\x1b') && !text.contains('\u{202e}'), "{text}");
    }
}

/// What is printed is typed into root's shell: a name is one word of it, whatever it is.
#[test]
fn a_shell_reads_each_foreign_name_in_a_printed_command_as_one_word() {
    const NAME: &str = "/a b;$(x)'c";
    let mut live = healthy();
    live.config.file = path(NAME);
    live.config.config.node.max_pods = 7;
    live.kubelet.processes = process("kubelet");
    live.kubelet.config = kubelet("");
    known(&mut live.files.socket).path = path(NAME);
    known(&mut live.files.socket).mode = 0o666;
    known(&mut live.files.state).path = path(NAME);
    known(&mut live.files.state).unwritable = Some("full".to_owned());
    known(&mut live.kubelet.config).as_mut().unwrap().unit = NAME.to_owned();
    let mut companion = healthy();
    beside_kubelet(&mut companion);
    companion.kubelet.processes = process("kubelet");
    companion.kubelet.config = kubelet("shutdownGracePeriod: 30s");
    let config = known(&mut companion.kubelet.config).as_mut().unwrap();
    (config.file, config.unit) = (NAME.to_owned(), NAME.to_owned());
    known(&mut companion.files.socket).directory_mode = 0o777;
    known(&mut companion.files.socket).path = path(NAME).join("sock");
    companion.config.read = ConfigRead::Invalid(vec!["bad".to_owned()]);
    companion.config.file = path(NAME);
    let mut valid = companion.clone();
    valid.config.read = ConfigRead::Valid(Vec::new());
    let mut image = live.clone();
    (image.live, image.root) = (false, path(NAME));
    image.kubelet.processes = Fact::not_live();
    image.kubelet.unit = Fact::Known(Some("kubelet.service".to_owned()));
    image.bus.service = Fact::not_live();
    image.files.setting = set("/etc/systemd/logind.conf.d/zzz.conf", 1);
    image.bus.login = Fact::not_live();
    let mut bare = image.clone();
    bare.files.installed = Fact::Known(Installed::default());
    bare.kubelet.unit = Fact::Known(None);
    let mut commands = 0;
    for facts in [live, companion, valid, image, bare] {
        for finding in findings(&facts) {
            let inline = finding.advice.iter().flat_map(|text| text.split('`').skip(1).step_by(2));
            for command in finding.fix.iter().map(String::as_str).chain(inline) {
                assert!(!command.contains("b;$(x)'c"), "{}: {command}", finding.id);
                commands += usize::from(command.contains("b;$(x)"));
            }
        }
    }
    assert!(commands >= 9, "only {commands} commands with a foreign name");
}

#[test]
fn numbers_that_make_no_sense_are_survived() {
    let mut facts = healthy();
    for wanted in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        known(&mut facts.agent).lock.required_seconds = wanted;
        assert!(!findings(&facts).is_empty());
    }
    facts.wanted = Duration::MAX;
    known(&mut facts.bus.login).delay = Duration::MAX;
    known(&mut facts.agent).node.uptime_seconds = u64::MAX;
    facts.clock.newest = Some((path("/x"), WallTime::MAX));
    facts.clock.now = WallTime::MIN;
    known(&mut facts.bus.service).timeout_stop = Duration::MAX;
    assert!(!findings(&facts).is_empty());
}

#[test]
fn a_node_of_which_nothing_is_seen_has_findings_all_the_same() {
    for kind in [NotObserved::Absent, NotObserved::Denied, NotObserved::Silent, NotObserved::Failed]
    {
        let mut facts = healthy();
        facts.agent = unseen(kind);
        facts.bus = BusFacts {
            login: unseen(kind),
            system: unseen(kind),
            service: unseen(kind),
            limit: unseen(kind),
            scopes: unseen(kind),
            slice: unseen(kind),
            synchronised: unseen(kind),
            is_booted: true,
        };
        facts.kubelet = KubeletOnDisk {
            processes: unseen(kind),
            unit: unseen(kind),
            config: unseen(kind),
            differences: Vec::new(),
        };
        facts.runtime.endpoint = unseen(kind);
        facts.runtime.killers = unseen(kind);
        facts.files.setting = unseen(kind);
        facts.files.installed = unseen(kind);
        facts.files.state = unseen(kind);
        facts.files.socket = unseen(kind);
        facts.files.reports = unseen(kind);
        facts.files.unreported = unseen(kind);
        facts.files.commands = unseen(kind);
        let diagnosis = diagnose(&facts);
        let worst = if kind == NotObserved::Denied { Severity::Info } else { Severity::Problem };
        assert_eq!(diagnosis.severity, worst, "{kind:?}: {diagnosis:#?}");
        assert!(diagnosis.findings.len() >= 10, "{kind:?}");
    }
}
