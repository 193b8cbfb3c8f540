pub(crate) mod fixtures;
mod screens;
mod start;

use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

use super::{Column, Table, View, changes, fit, status, wrap};
use fixtures::{at, broken_manifests, five_pods, fresh, pod, shutting_down};
use winddown_control::api::{
    ApiState, ApiStatus, ClosedBy, ClusterStatus, ContainerStatus, Decision, DrainStatus,
    ExitedRun, LastState, LockState, NoticeStatus, PodState, PodStatus, Protection,
    ProtectionReason, ProtectionState, RejectedPod, ShutdownPlan, Status, TerminatedBy,
};

#[test]
fn a_text_is_cut_by_the_columns_it_takes_and_not_by_its_characters() {
    assert_eq!(fit("abcdef", 6), "abcdef");
    assert_eq!(fit("abcdef", 4), "abc…");
    assert_eq!(fit("日本語日本語", 5), "日本…");
    assert_eq!(fit("日本語", 4), "日…");
    assert_eq!(fit("abc", 0), "");
}

#[test]
fn a_long_message_is_broken_at_spaces_and_a_long_word_where_the_line_ends() {
    assert_eq!(wrap("one two three four", None, 4), ["one two three four"]);
    assert_eq!(wrap("one two three four five", Some(20), 4), ["one two three", "four five"]);
    assert_eq!(
        wrap(&"x".repeat(40), Some(20), 0),
        ["x".repeat(20), "x".repeat(20)],
        "a word longer than a line"
    );
    assert_eq!(wrap("", Some(20), 0), [""]);
    assert_eq!(wrap("  one two three four", Some(20), 4), ["  one two three", "four"]);
    assert_eq!(wrap("  one", None, 4), ["  one"]);
}

#[test]
fn wide_characters_do_not_push_later_columns_out_of_line() {
    let mut table = Table::new([Column::words("NAME"), Column::numbers("N")]);
    table.row([("日本", None), ("1", None)]);
    table.row([("abcdef", None), ("22", None)]);
    assert_eq!(table.render(&View::default()), "NAME     N\n日本     1\nabcdef  22\n");
}

#[test]
fn a_hostile_pod_neither_reaches_the_terminal_nor_breaks_the_table() {
    let mut node = five_pods();
    let mut evil = pod("default", "\x1b]0;owned\x07\u{202e}web", 0);
    // Not among the codes that are removed below.
    evil.reason = "\x1b[35mRunning\nroot@node:~#".to_owned();
    node.pods.push(evil);
    node.decisions.last_mut().expect("a decision").text = "x\x1b[2J\ny".to_owned();
    node.node.name = "\x1b[3mnode".to_owned();
    node.manifests.directory = "\x1b[5m".to_owned();
    for color in [false, true] {
        let view = View { width: Some(80), color, wide: true };
        let text = status(&node, &view);
        let plain = anstream_free(&text);
        assert!(
            !plain.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')),
            "{plain:?}"
        );
        let forged = |line: &str| line.starts_with("root@") || line == "y";
        assert!(!plain.lines().any(|line| forged(line.trim())), "{plain}");
    }
}

/// A container that waits for this reason.
fn waiting(reason: &str) -> ContainerStatus {
    ContainerStatus {
        name: "main".to_owned(),
        state: "waiting".to_owned(),
        reason: reason.to_owned(),
        ..ContainerStatus::default()
    }
}

#[test]
fn describe_quotes_what_a_container_wrote_so_that_it_forges_no_field() {
    let written = "no\"\r\n\x1b[2K    Ready:          True";
    let mut main = waiting("CrashLoopBackOff");
    let last = main.last_state.get_or_insert_default();
    last.terminated.message = written.to_owned();
    let done = ContainerStatus {
        state: "exited".to_owned(),
        message: written.to_owned(),
        ..ContainerStatus::default()
    };
    let mut node = five_pods();
    let web = PodStatus { containers: vec![main, done], ..pod("default", "web", 0) };
    node.decisions = vec![Decision {
        kind: "containerExited".to_owned(),
        pod: "default/web".to_owned(),
        fields: [("container", "main"), ("lastLine", written)]
            .map(|(name, value)| (name.to_owned(), value.into()))
            .into(),
        ..Decision::default()
    }];
    let text = crate::describe(&node, &web, &ShutdownPlan::default(), &View::default());
    let quoted = r#""no\"\r\n\u{1b}[2K    Ready:          True""#;
    for name in ["    Last Line:      ", "      Message:      "] {
        assert!(text.contains(&format!("{name}{quoted}\n")), "{name}: {text}");
    }
    assert_eq!(text.matches(quoted).count(), 3, "{text}");
}

#[test]
fn a_pod_that_loops_is_a_problem_with_its_exit_code_and_the_path_of_its_log() {
    let mut node = fresh();
    let mut loops = pod("default", "web", 0);
    let terminated = ExitedRun { exit_code: 3, reason: "Error".to_owned(), ..ExitedRun::default() };
    loops.containers = vec![ContainerStatus {
        last_state: Some(LastState { terminated }),
        log: "/var/log/winddown/default_web_u/main/4.log".to_owned(),
        ..waiting("CrashLoopBackOff")
    }];
    node.pods.push(loops);
    let text = status(&node, &View::default());
    let wanted = "! default/web does not stay up: container main exited with code 3 (Error)\n    \
                  `winddown describe default/web` shows more; its output is in /var/log/winddown/default_web_u/main/4.log\n";
    assert!(text.contains(wanted), "{text}");
}

#[test]
fn a_program_that_puts_itself_into_the_background_is_told_to_stay() {
    let mut node = fresh();
    let mut loops = pod("default", "web", 0);
    let terminated = ExitedRun { reason: "Completed".to_owned(), ..ExitedRun::default() };
    loops.containers = vec![ContainerStatus {
        last_state: Some(LastState { terminated }),
        ..waiting("CrashLoopBackOff")
    }];
    node.pods.push(loops);
    let text = status(&node, &View::default());
    assert!(text.contains("keep its program in the foreground"), "{text}");
}

#[test]
fn a_pod_without_an_image_is_a_problem_and_the_way_out_is_named() {
    let problem = |reason: &str, state| {
        let mut node = fresh();
        let mut pulls = pod("default", "web", 0);
        pulls.state = state;
        pulls.containers = vec![waiting(reason)];
        node.pods.push(pulls);
        let text = status(&node, &View::default());
        text.lines().find(|line| line.contains("default/web ")).map(str::to_owned)
    };
    let reasons = ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable"];
    for reason in reasons {
        let line = problem(reason, PodState::Syncing).unwrap_or_default();
        assert!(
            line.contains(&format!("default/web has no image: container main: {reason}")),
            "{reason}: {line}"
        );
    }
    let line = problem("CreateContainerConfigError", PodState::Syncing).unwrap_or_default();
    assert!(line.contains("cannot be started as it is written"), "{line}");
    assert_eq!(problem("ErrImagePull", PodState::Terminating), None, "it is on its way out");
    assert_eq!(problem("ContainerCreating", PodState::Syncing), None);
}

#[test]
fn a_pod_that_lacks_a_port_is_shown_with_who_uses_it() {
    let mut node = fresh();
    let refused = RejectedPod {
        namespace: "default".to_owned(),
        name: "second".to_owned(),
        reason: "NodePorts".to_owned(),
        held_by: Some("port 8200 is used by default/first".to_owned()),
        ..RejectedPod::default()
    };
    node.rejected = vec![refused.clone()];
    for text in [
        status(&node, &View::default()),
        crate::describe_rejected(&node, &refused, &View::default()),
    ] {
        let next = "port 8200 is used by default/first: correct either manifest";
        assert!(text.contains(next) && text.contains("NodePorts"), "{text}");
    }
}

#[test]
fn a_configuration_that_was_changed_and_not_read_is_a_problem() {
    let mut node = fresh();
    node.config.changed_at = Some("2026-11-20T07:00:05Z".parse().unwrap());
    let text = status(&node, &View::default());
    let line = text.lines().find(|line| line.contains("not in effect")).unwrap_or_default();
    assert!(line.starts_with("! the configuration was changed at 2026-11-20T07:00:05Z"), "{text}");
    assert!(text.contains("`systemctl reload winddown`"), "{text}");
}

fn verdict_of(node: &mut Status) -> &mut Protection {
    node.protection.as_mut().unwrap()
}

#[test]
fn a_kubelet_whose_companion_the_agent_is_not_stands_in_the_headline_and_among_the_problems() {
    let mut node = fresh();
    let told = |node: &Status| status(node, &View::default());
    node.protection = Some(Protection {
        state: ProtectionState::Unprotected,
        terminated_by: TerminatedBy::None,
        reason: ProtectionReason::NotACompanion,
        text: "a kubelet\x1b[2J runs pods here".to_owned(),
        next: "make the agent its companion".to_owned(),
        ..Protection::default()
    });
    let text = told(&node);
    assert!(text.contains("\nprotected  NO: a kubelet"), "{text}");
    assert!(text.contains("\n! a kubelet") && text.contains("make the agent"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    node.protection.as_mut().unwrap().state = ProtectionState::Unknown;
    assert!(told(&node).contains("protected  NOT KNOWN: "), "{}", told(&node));
    // What the lock's own row says is no problem of its own.
    let verdict = node.protection.as_mut().unwrap();
    (verdict.state, verdict.reason) = (ProtectionState::Unprotected, ProtectionReason::LockNotHeld);
    let text = told(&node);
    assert!(text.contains("\nprotected  NO: a kubelet"), "{text}");
    assert_eq!(text.matches("a kubelet").count(), 1, "{text}");
    let verdict = verdict_of(&mut node);
    (verdict.state, verdict.reason) = (ProtectionState::Limited, ProtectionReason::DelayTooShort);
    assert!(told(&node).contains("\nprotected  IN PART: a kubelet"), "{}", told(&node));
    let verdict = node.protection.as_mut().unwrap();
    (verdict.state, verdict.reason) = (ProtectionState::Protected, ProtectionReason::LockHeld);
    verdict.text = "this agent terminates the pods".to_owned();
    let text = told(&node);
    assert!(text.contains("\nprotected  yes: this agent terminates the pods\n"), "{text}");
}

#[test]
fn beside_a_kubelet_no_manifest_is_asked_for_and_no_shutdown_is_promised_that_the_agent_does_not_know_of()
 {
    let mut node = fresh();
    node.cluster = Some(ClusterStatus {
        mode: "companion".to_owned(),
        api: ApiStatus { state: ApiState::Unreachable, ..ApiStatus::default() },
        ..ClusterStatus::default()
    });
    node.runtime.healthy = false;
    node.runtime.message = "the API server is unavailable".to_owned();
    let text = status(&node, &View::default());
    assert!(text.contains("\nthe kubelet has no pods here\n"), "{text}");
    assert!(text.contains("! the kubelet's pods: the API server is unavailable"), "{text}");
    assert!(!text.contains("manifest") && !text.contains("a shutdown works"), "{text}");
}

#[test]
fn a_deleted_node_object_is_a_problem_with_its_remedy() {
    let mut node = fresh();
    let api = ApiStatus { state: ApiState::Connected, ..ApiStatus::default() };
    let cluster = ClusterStatus { api, registered: Some(false), ..ClusterStatus::default() };
    for (mode, remedy) in [("cluster", "`recreateNode: true`"), ("companion", "the kubelet")] {
        node.cluster = Some(ClusterStatus { mode: mode.to_owned(), ..cluster.clone() });
        let text = status(&node, &View::default());
        assert!(text.contains("! the Node object was deleted") && text.contains(remedy), "{text}");
    }
}

/// Removes the colour codes that this module writes.
fn anstream_free(text: &str) -> String {
    ["1", "2", "0", "31", "32", "33"]
        .iter()
        .fold(text.to_owned(), |text, code| text.replace(&format!("\x1b[{code}m"), ""))
}

#[test]
fn without_colour_there_is_not_one_escape() {
    let text = status(&five_pods(), &View { width: None, color: false, wide: true });
    assert!(!text.contains('\x1b'), "{text}");
    let text = status(&five_pods(), &View { width: None, color: true, wide: true });
    assert!(text.contains('\x1b'), "{text}");
}

#[test]
fn a_piped_watch_first_tells_everything_then_only_what_changed() {
    let before = five_pods();
    let lines = changes(None, &before);
    assert_eq!(
        lines.first().map(String::as_str),
        Some("2026-11-20T12:00:00Z lock held, 40s of 40s")
    );
    assert_eq!(lines.len(), 7, "{lines:#?}");
    assert!(changes(Some(&before), &before).is_empty());

    let mut after = before.clone();
    after.pods.remove(0);
    let ending = after.pods.get_mut(0).expect("a pod");
    ending.state = PodState::Terminating;
    ending.ready = false;
    after.lock.state = LockState::Waiting;
    after.lock.why = Some("logind\nis gone".to_owned());
    assert_eq!(
        changes(Some(&before), &after),
        [
            "2026-11-20T12:00:00Z lock not held: logind\\nis gone",
            "2026-11-20T12:00:00Z pod kube-system/log-shipper-edge-1 Terminating ready=0/1 restarts=0",
            "2026-11-20T12:00:00Z pod default/web-edge-1 gone",
        ]
    );
}

#[test]
fn a_piped_watch_tells_what_begins_and_what_is_over() {
    let calm = five_pods();
    let mut busy = calm.clone();
    let drain = DrainStatus { progress: shutting_down().shutdown, ..DrainStatus::default() };
    busy.drain = Some(drain);
    busy.admission_closed_by = vec![ClosedBy::Drain];
    busy.pods_unknown = true;
    busy.runtime.healthy = false;
    busy.runtime.message = "no answer".to_owned();
    busy.notices = vec![NoticeStatus {
        source: "file".to_owned(),
        deadline: Some(at("12:01:30")),
        text: "battery\nlow".to_owned(),
        in_effect: true,
        problem: None,
    }];
    busy.rejected = broken_manifests().rejected;
    let begun = changes(Some(&calm), &busy);
    for said in [
        " drain running",
        " drain running: ordinary pods, 3 of 3 terminated",
        " admission closed: an operator drained the node",
        " notice of file, the node goes away at 2026-11-20T12:01:30Z: battery\\nlow",
        " runtime ",
        " running pods are not known yet",
        " rejected ",
    ] {
        assert!(begun.iter().any(|line| line.contains(said)), "{said:?} is not in {begun:#?}");
    }
    let over = changes(Some(&busy), &calm);
    assert_eq!(over.iter().filter(|line| line.contains("Z over: ")).count(), 5, "{over:#?}");
    assert!(over.iter().any(|line| line.ends_with(" drain none")), "{over:#?}");
}

#[test]
fn an_error_names_its_causes_once_each_and_what_to_do_next() {
    let error = anyhow::Error::new(std::io::Error::other("disk\x1b[2J on fire"))
        .context("cannot read the report\nof yesterday");
    assert_eq!(
        super::error(&error, "call the fire brigade", false),
        "error: cannot read the report\n  of yesterday\n  because: disk\\x1b[2J on fire\n  \
         next: call the fire brigade"
    );
}

proptest! {
    #[test]
    fn no_line_is_wider_than_the_terminal_whatever_the_names_are(
        name in ".{0,300}", namespace in ".{0,80}", why in ".{0,300}", width in 70_usize..200,
    ) {
        let mut node: Status = fresh();
        let mut hostile = pod(&namespace, &name, i32::MIN);
        hostile.restarts = u32::MAX;
        hostile.reason.clone_from(&why);
        node.pods.push(hostile);
        node.lock.state = LockState::Waiting;
        node.lock.why = Some(why.clone());
        node.node.name = name;
        node.config.warnings.push(why);
        let text = status(&node, &View { width: Some(width), color: false, wide: false });
        for line in text.lines() {
            prop_assert!(line.width() <= width, "{} > {width}: {line:?}", line.width());
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
}
