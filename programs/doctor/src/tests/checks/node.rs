//! The configuration, the disk, the clock.

use super::super::*;
use super::Severity::{Info, Problem, Warning};
use super::check;
use crate::facts::InPlaceOfLogs;
use winddown_config::{Exposed, Exposure};
use winddown_control::api::ManifestProblem;
use winddown_host::{OthersMayRead, OthersMayWrite, Writers};

fn written_by(path: &str, who: Writers) -> OthersMayWrite {
    OthersMayWrite { path: path.into(), who }
}

fn linked_logs(to: Option<&str>) -> InPlaceOfLogs {
    let (path, leads_to) = ("/var/log/winddown".into(), to.map(Into::into));
    InPlaceOfLogs { path, what: "it is a link".into(), leads_to }
}

#[test]
fn what_is_wrong_with_the_node_is_found() {
    check(&[
        (
            "wrong config",
            |f| f.config.read = ConfigRead::Invalid(vec!["config.yaml:3: no".into()]),
            "config",
            Problem,
            "config.yaml:3",
            "winddown config check",
        ),
        (
            "no config",
            |f| f.config.read = ConfigRead::Defaults,
            "config",
            Info,
            "is not there",
            "winddown config default",
        ),
        (
            "remarks",
            |f| f.config.read = ConfigRead::Valid(vec!["x is not used".into()]),
            "config",
            Info,
            "x is not used",
            "",
        ),
        (
            "a link to a disk of logs",
            |f| f.files.in_place_of_logs = Fact::Known(Some(linked_logs(Some("/data/logs")))),
            "logs",
            Warning,
            "/var/log/winddown: it is a link",
            "write podLogsDir: /data/logs into /etc/winddown/config.yaml; otherwise move",
        ),
        (
            "a link to nothing where logs should be",
            |f| f.files.in_place_of_logs = Fact::Known(Some(linked_logs(None))),
            "logs",
            Warning,
            "/var/log/winddown: it is a link",
            "move /var/log/winddown away; then `systemctl restart winddown`",
        ),
        (
            "hung disk",
            |f| f.config.read = ConfigRead::Unread(NotObserved::Silent, "hm".into()),
            "config",
            Problem,
            "hm",
            "",
        ),
        (
            "changed since",
            |f| {
                known(&mut f.agent).config.loaded_at = Some(now());
                known(&mut f.agent).config.changed_at =
                    Some("2026-11-20T07:00:05Z".parse().unwrap());
            },
            "config",
            Warning,
            "read 2026-11-20T07:00:00Z",
            "systemctl reload winddown",
        ),
        (
            "changed for the next start",
            |f| known(&mut f.agent).config.at_restart.push("reportsKept".into()),
            "config",
            Warning,
            "",
            "systemctl restart winddown",
        ),
        (
            "changed runtime",
            |f| known(&mut f.agent).config.at_restart.push("runtime".into()),
            "config",
            Warning,
            "",
            "the commands for `runtime`",
        ),
        (
            "wrong manifest",
            |f| {
                known(&mut f.agent).manifests.problems.push(ManifestProblem {
                    file: "web.yaml".into(),
                    line: Some(3),
                    field: "spec".into(),
                    message: "missing".into(),
                    ..ManifestProblem::default()
                });
            },
            "manifests",
            Warning,
            "web.yaml:3: spec: missing",
            "",
        ),
        (
            "no directory of manifests",
            |f| {
                let manifests = &mut known(&mut f.agent).manifests;
                manifests.directory = "/etc/winddown/pods".into();
                manifests.problems.push(ManifestProblem {
                    file: "/etc/winddown/pods".into(),
                    message: "does not exist: create it".into(),
                    ..ManifestProblem::default()
                });
            },
            "manifests",
            Warning,
            "/etc/winddown/pods: does not exist: create it",
            "",
        ),
        (
            "read-only",
            |f| known(&mut f.files.state).unwritable = Some("Read-only".into()),
            "state",
            Problem,
            "Read-only",
            "df -h /var/lib/winddown",
        ),
        (
            "full",
            |f| known(&mut f.files.state).left.bytes = 1 << 20,
            "state",
            Warning,
            "1.0 MiB free",
            "df -h",
        ),
        (
            "no inodes",
            |f| known(&mut f.files.state).left.inodes = Some(3),
            "state",
            Warning,
            "3 inodes",
            "df -i",
        ),
        (
            "hung state",
            |f| f.files.state = unseen(NotObserved::Silent),
            "state",
            Problem,
            "as was said",
            "",
        ),
        (
            "state gone",
            |f| f.files.state = unseen(NotObserved::Absent),
            "state",
            Problem,
            "as was said",
            "",
        ),
        (
            "open socket",
            |f| known(&mut f.files.socket).mode = 0o666,
            "socket",
            Problem,
            "mode 0666",
            "chmod 0600 /run/winddown/winddown.sock",
        ),
        (
            "socket of a group that is not configured",
            |f| known(&mut f.files.socket).mode = 0o660,
            "socket",
            Warning,
            "mode 0660",
            "systemctl restart winddown",
        ),
        (
            "manifests that everybody may write",
            |f| {
                f.files.others_may_write =
                    Fact::Known(vec![written_by("/etc/winddown/pods", Writers::Everybody)]);
            },
            "manifest-writers",
            Problem,
            "/etc/winddown/pods: every user may write to it",
            "chmod go-w /etc/winddown/pods",
        ),
        (
            "a manifest that a group may write",
            |f| {
                f.files.others_may_write =
                    Fact::Known(vec![written_by("/p/a.yaml", Writers::Group(7))]);
            },
            "manifest-writers",
            Warning,
            "/p/a.yaml: group 7 may write to it",
            "chmod go-w /p/a.yaml",
        ),
        (
            "a configuration of a user's",
            |f| f.files.exposed = Fact::Known(vec![exposed(1000)]),
            "writers",
            Warning,
            "configuration: /etc/winddown/config.yaml: it belongs to user 1000",
            "to accept it as it is, run: chown root:root /etc/winddown/config.yaml",
        ),
        (
            "a key that everybody may read, and nothing that is written",
            |f| {
                let key = OthersMayRead { path: "/k/node.key".into(), group: None };
                let option = "tlsPrivateKeyFile".to_owned();
                f.files.exposed =
                    Fact::Known(vec![Exposed { option, how: Exposure::Readable(key) }]);
            },
            "writers",
            Problem,
            "tlsPrivateKeyFile: /k/node.key: every user may read it",
            "to close it, run: chmod go-rwx /k/node.key",
        ),
        (
            "a key that everybody may read",
            |f| {
                let key = OthersMayRead { path: "/k/node.key".into(), group: None };
                let option = "tlsPrivateKeyFile".to_owned();
                let how = Exposure::Readable(key);
                f.files.exposed = Fact::Known(vec![exposed(1000), Exposed { option, how }]);
            },
            "writers",
            Problem,
            "tlsPrivateKeyFile: /k/node.key: every user may read it",
            "chmod go-rwx /k/node.key",
        ),
        (
            "a path that cannot be looked at",
            |f| {
                let (path, kind) = ("/k".into(), std::io::ErrorKind::PermissionDenied);
                let how = Exposure::Unknown { path, kind };
                f.files.exposed =
                    Fact::Known(vec![Exposed { option: "kubeconfig".to_owned(), how }]);
            },
            "writers",
            Info,
            "kubeconfig: /k: it is not known who may write it: permission denied",
            "",
        ),
        (
            "an API server that may be anybody",
            |f| f.api.server_verified = Fact::Known(false),
            "api-server",
            Warning,
            "insecure-skip-tls-verify",
            "certificate-authority",
        ),
        (
            "open directory",
            |f| known(&mut f.files.socket).directory_mode = 0o777,
            "socket",
            Problem,
            "/run/winddown: mode 0777",
            "chmod 0755 /run/winddown",
        ),
        (
            "other group",
            |f| f.config.config.access.control_socket_group = Some("winddown".into()),
            "socket",
            Warning,
            "group root",
            "systemctl restart winddown",
        ),
        (
            "no such group, and no agent: a restart alone would fail again",
            |f| {
                f.files.socket = unseen(NotObserved::Absent);
                f.beyond.missing_group = Fact::Known(Some("no body".to_owned()));
            },
            "socket",
            Problem,
            "there is no group no body",
            "groupadd -r 'no body'",
        ),
        (
            "clock behind",
            |f| f.clock.newest = Some((path("/x"), "2026-11-21T07:00:00Z".parse().unwrap())),
            "clock",
            Warning,
            "/x is of 2026-11-21",
            "switch the node's time service on",
        ),
        (
            "not synchronised",
            |f| f.bus.synchronised = Fact::Known(false),
            "clock",
            Info,
            "now 2026",
            "switch the node's time service on",
        ),
        (
            "a busy machine: it would say that the clock is not synchronised",
            |f| f.bus.synchronised = unseen(NotObserved::Silent),
            "clock",
            Info,
            "as was said",
            "",
        ),
    ]);
}

fn exposed(uid: u32) -> Exposed {
    let found = written_by("/etc/winddown/config.yaml", Writers::User(uid));
    Exposed { option: "configuration".to_owned(), how: Exposure::Writable(found) }
}

#[test]
fn beside_a_kubelet_nothing_is_said_of_manifests_that_the_agent_does_not_read() {
    let mut facts = healthy();
    facts.files.others_may_write =
        Fact::Known(vec![written_by("/etc/winddown/pods", Writers::Everybody)]);
    let found = |facts: &Facts| ["manifests", "manifest-writers"].map(|id| finding(facts, id));
    assert!(found(&facts).iter().all(Option::is_some));
    beside_kubelet(&mut facts);
    assert_eq!(found(&facts), [None, None]);
}

/// In a pod, for one.
#[test]
fn an_agent_that_no_unit_has_started_is_not_to_be_reloaded_by_it() {
    let mut facts = healthy();
    known(&mut facts.agent).config.loaded_at = Some(now());
    known(&mut facts.agent).config.changed_at = Some("2026-11-20T07:00:05Z".parse().unwrap());
    known(&mut facts.bus.service).active_state = "inactive".to_owned();
    let found = finding(&facts, "config").unwrap();
    assert_eq!((found.severity, found.fix_id), (Warning, None), "{found:?}");
    assert!(found.advice[0].contains("restart it"), "{found:?}");
}
