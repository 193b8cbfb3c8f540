use unicode_width::UnicodeWidthStr;
use winddown_control::api::{ReportEntry, ReportList};
use winddown_shared::RequestReport;
use winddown_shutdown::{
    BudgetReport, DelayedBy, GroupReport, NoticeReport, Outcome, PodEnd, PodReport, ShutdownReport,
    Trigger,
};

use super::text;
use crate::View;

#[path = "../../../../shutdown/src/report/tests/samples.rs"]
mod samples;

pub(super) use samples::{group, ms, pod, report};

#[test]
fn a_clean_shutdown_reads_well() {
    let groups = vec![
        group(
            0,
            Some((0, 3012)),
            vec![
                pod("web", PodEnd::Exited, Some(0), Some(1250)),
                pod("database", PodEnd::Exited, Some(0), Some(3012)),
            ],
        ),
        group(1000, None, vec![]),
        group(
            2_000_000_000,
            Some((3013, 8176)),
            vec![pod("dns", PodEnd::Exited, Some(3013), Some(8176))],
        ),
    ];
    assert_eq!(
        text(&report(Outcome::Clean, 8177, groups), false),
        "\
Clean shutdown: 3 pods exited by themselves in 8.2 s (budget 30 s).
2026-11-20 03:44:00 UTC · power-off · boot 4f1c8a2e

priority 0 and above · 2 pods · took 3 s of 30 s · held by default/database for the last 1.8 s
  POD                GRACE     ASKED   SIGTERM      EXIT
  default/web         20 s     0.000     0.003     1.250
  default/database    20 s     0.000     0.003     3.012

priority 2000000000 and above · 1 pod · took 5.2 s of 27 s
  POD                GRACE     ASKED   SIGTERM      EXIT
  default/dns         20 s     3.013     3.016     8.176
"
    );
}

#[test]
fn each_rendering_of_an_outcome_has_the_word_of_its_table() {
    for outcome in Outcome::ALL {
        let word = outcome.text().word;
        let run = report(
            outcome,
            7000,
            vec![group(0, None, vec![pod("web", PodEnd::StillRunning, None, None)])],
        );
        assert!(text(&run, false).starts_with(word), "{word}");
        assert!(super::html(&run).contains(&format!("<title>{word} ")), "{word}");
        let name = serde_json::to_value(outcome).unwrap();
        let entry = ReportEntry {
            outcome: name.as_str().unwrap().into(),
            pods: 1,
            took_seconds: 7.0,
            ..ReportEntry::default()
        };
        let list = ReportList { reports: vec![entry; 3], ..ReportList::default() };
        assert!(crate::reports(&list, &View::default()).contains(&format!(" {word} ")), "{word}");
        let how = match outcome {
            Outcome::Clean => String::new(),
            _ => format!(" ({})", word.to_lowercase()),
        };
        let said = [(); 3].map(|()| format!("7s{how}")).join(", ");
        assert_eq!(crate::trend(&list).unwrap(), format!("The last 3 shutdowns took {said}."));
    }
}

#[test]
fn a_wide_name_does_not_push_the_columns_of_a_report_out_of_line() {
    let pods = ["web", "日本語"].map(|name| pod(name, PodEnd::Exited, Some(0), Some(1000)));
    let text =
        text(&report(Outcome::Clean, 1000, vec![group(0, Some((0, 1000)), pods.into())]), false);
    let rows = text.lines().filter(|line| line.contains("1.000"));
    let widths: Vec<_> = rows.map(UnicodeWidthStr::width).collect();
    assert_eq!((widths.len(), widths[0]), (2, widths[1]), "{text}");
}

#[test]
fn statuses_that_were_not_sent_are_named_in_every_form_of_the_report() {
    let mut run = report(Outcome::Clean, 0, vec![]);
    run.unsent_statuses = vec!["shop/web".into()];
    for text in [text(&run, false), super::html(&run)] {
        let said = "Not sent to the API server: the last status of 1 pod: shop/web.";
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn who_had_asked_a_pod_to_end_before_is_said_beside_it() {
    let old = PodReport {
        prior_reason: Some("max-age".into()),
        remark: Some("its disruption budget refused for 6.5 s".into()),
        mounts: vec!["/a".into()],
        stays_on_reboot: true,
        ..pod("old", PodEnd::Exited, Some(0), Some(1250))
    };
    let text =
        text(&report(Outcome::Clean, 1250, vec![group(0, Some((0, 1250)), vec![old])]), false);
    assert!(text.contains("was already terminating (max-age); starts again here; its disruption budget refused for 6.5 s; 1 resource not released"), "{text}");
}

#[test]
fn a_pod_that_stays_is_named_with_the_reason_and_is_no_failure() {
    let why = "a kubelet would start it again";
    let etcd =
        PodReport { error: Some(why.into()), ..pod("etcd", PodEnd::NotDrainable, None, None) };
    let web = pod("web", PodEnd::Exited, Some(0), Some(500));
    let pods = vec![group(0, Some((0, 500)), vec![etcd, web])];
    let mut report = report(Outcome::Clean, 500, pods);
    report.trigger = Trigger::Drain;
    let text = text(&report, false);
    assert!(text.starts_with("Clean drain: 1 pod exited by itself in "), "{text}");
    assert!(text.contains("; 1 pod stays.\n") && text.contains(why), "{text}");
}

#[test]
fn a_pod_that_got_no_grace_shows_none_and_not_zero_seconds() {
    let killed = PodReport {
        grace: ms(0),
        wanted_grace: Some(ms(60_000)),
        ..pod("slow", PodEnd::Killed, Some(0), Some(4))
    };
    let none = PodReport { wanted_grace: None, name: "none".into(), ..killed.clone() };
    let report = report(Outcome::Forced, 10, vec![group(0, Some((0, 5)), vec![killed, none])]);
    let (text, page) = (text(&report, false), super::html(&report));
    for (shown, wanted) in [
        (&text, "default/slow  none of 60 s "),
        (&text, "default/none          none "),
        (&page, "grace none, its own is 60 s"),
        (&page, "<td role=\"cell\" class=\"number\" data-name=\"Grace\">none</td>"),
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
}

#[test]
fn who_was_killed_and_who_is_left_is_said_beside_the_pod() {
    let killed = PodReport {
        containers: vec!["main".into(), "log".into()],
        wanted_grace: Some(ms(60_000)),
        ..pod("slow", PodEnd::Killed, Some(0), Some(20_004))
    };
    let hung = PodReport {
        containers: vec!["main".into()],
        error: Some("not gone after 31s: main".into()),
        ..pod("hung", PodEnd::StillRunning, Some(0), None)
    };
    let unknown = PodReport {
        sigterm: None,
        error: Some("no answer from the pod workers at the deadline".into()),
        ..pod("unknown", PodEnd::StillRunning, Some(0), None)
    };
    let mut report = report(
        Outcome::Incomplete,
        31_000,
        vec![group(0, Some((0, 30_100)), vec![killed, hung, unknown])],
    );
    report.budget.pods = ms(27_000);
    report.budget.delay = Some(ms(30_000));
    report.budget.delay_set_by =
        Some("/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf".into());
    assert_eq!(
        text(&report, false),
        "\
Incomplete shutdown: 2 of 3 pods were still running when the lock was released, after 31 s (budget 27 s).
2026-11-20 03:44:00 UTC · power-off · boot 4f1c8a2e
The groups ask for 30 s, but the login manager waits only 30 s (set by \
/usr/lib/systemd/logind.conf.d/unattended-upgrades-logind-maxdelay.conf), and 2 s are in \
reserve: the pods got 27 s.

priority 0 and above · 3 pods · took 30.1 s of 30 s
  POD                     GRACE     ASKED   SIGTERM      EXIT
  default/hung             20 s     0.000     0.003         -  STILL RUNS: main
  default/unknown          20 s     0.000         -         -  STILL RUNS? no answer from the \
pod workers at the deadline
  default/slow     20 s of 60 s     0.000     0.003    20.004  killed: main, log
"
    );
}

#[test]
fn what_cut_the_time_of_the_pods_is_said_to_be_what_leaves_the_least() {
    let by_notice = "The groups ask for 30 s, but the notice leaves only 13 s, and 1.3 s are in \
                     reserve: the pods got 11.7 s.";
    let by_delay = "The groups ask for 30 s, but the login manager waits only 13 s (set by /a.conf), and 1.3 s are in \
                    reserve: the pods got 11.7 s.";
    for (delay, notice, said) in [
        (None, Some(13_000), by_notice),
        (Some(120_000), Some(13_000), by_notice),
        (Some(13_000), Some(120_000), by_delay),
        (Some(13_000), None, by_delay),
    ] {
        let mut run = report(Outcome::Clean, 0, vec![]);
        run.budget.pods = ms(11_700);
        run.budget.reserve = ms(1300);
        run.budget.delay = delay.map(ms);
        run.budget.delay_set_by = delay.map(|_| "/a.conf".into());
        run.notice = notice.map(|deadline| NoticeReport {
            source: "operator".into(),
            text: "battery".into(),
            deadline: ms(deadline),
        });
        for shown in [text(&run, false), super::html(&run)] {
            assert!(shown.contains(said), "{delay:?}, {notice:?}: {shown}");
        }
    }
}

#[test]
fn a_reserve_of_nothing_is_not_mentioned() {
    let mut run = report(Outcome::Clean, 0, vec![]);
    (run.budget.pods, run.budget.reserve, run.budget.delay) = (ms(1), ms(0), Some(ms(1)));
    let shown = text(&run, false);
    let said = "waits only 1 ms: the pods got 1 ms.";
    assert!(shown.contains(said), "{shown}");
}

#[test]
fn a_limit_counts_from_the_start_in_the_words_of_a_run_that_began_before_its_wait() {
    use DelayedBy::{LoginManager, ServiceManager};
    let mut run = report(Outcome::Clean, 0, vec![]);
    (run.budget.pods, run.budget.delay) = (ms(11_700), Some(ms(13_000)));
    for (trigger, delayed_by, said) in [
        (Trigger::LoginManager, LoginManager, "but the login manager waits only 13 s, and"),
        (Trigger::Drill, LoginManager, "but the login manager waits only 13 s, and"),
        (Trigger::UnitStop, ServiceManager, "but systemd waits only 13 s, and"),
        (Trigger::Notice, LoginManager, "waits only until 13 s after the start, and"),
        (Trigger::Notice, ServiceManager, "waits only until 13 s after the start, and"),
        (Trigger::LoginManager, ServiceManager, "waits only until 13 s after the start, and"),
    ] {
        (run.trigger, run.budget.delayed_by) = (trigger, delayed_by);
        for shown in [text(&run, false), super::html(&run)] {
            assert!(shown.contains(said), "{trigger:?}, {delayed_by:?}: {shown}");
        }
    }
}

#[test]
fn a_limit_of_systemd_is_not_said_to_be_the_login_managers() {
    let web = pod("web", PodEnd::Exited, Some(0), Some(26_000));
    let mut run = report(Outcome::Clean, 26_000, vec![group(0, Some((0, 26_000)), vec![web])]);
    run.budget.pods = ms(27_000);
    run.budget.delay = Some(ms(30_000));
    (run.trigger, run.budget.delayed_by) = (Trigger::UnitStop, DelayedBy::ServiceManager);
    run.budget.delay_set_by = Some("JobTimeoutSec of poweroff.target".into());
    let said = "but systemd waits only 30 s (set by JobTimeoutSec of poweroff.target), and";
    let page = super::html(&run);
    for shown in [&text(&run, false), &page] {
        assert!(shown.contains(said), "{shown}");
    }
    assert!(page.contains("systemd&#39;s limit 30 s") && !page.contains("logind"), "{page}");
}

#[test]
fn of_very_many_pods_those_that_went_wrong_and_the_slowest_are_shown() {
    let mut pods: Vec<_> =
        (0..1000).map(|n| pod(&format!("p{n}"), PodEnd::Exited, Some(0), Some(500 + n))).collect();
    pods[7] = pod("killed", PodEnd::Killed, Some(0), Some(3000));
    let report = report(Outcome::Forced, 3000, vec![group(0, Some((0, 3000)), pods)]);
    let text = text(&report, false);
    let rows: Vec<&str> = text.lines().skip(5).collect();
    assert!(text.contains("held by default/killed for the last 1.5 s"), "{text}");
    assert!(rows[0].trim_start().starts_with("default/killed"), "{text}");
    assert!(rows[1].trim_start().starts_with("default/p999 "), "{text}");
    assert_eq!(rows.len(), 13);
    assert_eq!(rows[12], "  … 988 more: exited by themselves by 1.5 s; -o json has them");
}

#[test]
fn a_group_is_held_by_the_pod_that_ended_alone_at_its_end() {
    let held = |pods| {
        let group = group(0, Some((0, 5000)), pods);
        super::sentences::held_by(&group).map(|(pod, alone)| (pod.name.clone(), alone))
    };
    let ended = |name, at| pod(name, PodEnd::Exited, Some(0), Some(at));
    assert_eq!(held(vec![ended("a", 5000)]), None, "there is no other");
    assert_eq!(held(vec![ended("a", 4950), ended("b", 5000)]), None, "it is no matter");
    assert_eq!(held(vec![ended("a", 5000), ended("b", 2000)]), Some(("a".into(), ms(3000))));
    let left = pod("left", PodEnd::StillRunning, Some(0), None);
    assert_eq!(held(vec![left, ended("b", 2000)]), Some(("left".into(), ms(3000))));
    let spared = pod("spared", PodEnd::Spared, None, None);
    assert_eq!(held(vec![spared, ended("b", 2000)]), None, "it was not asked");
}

#[test]
fn what_comes_before_sigterm_is_said() {
    let mut hooked = pod("hooked", PodEnd::Exited, Some(0), Some(2000));
    hooked.sigterm = Some(ms(900));
    let text =
        text(&report(Outcome::Clean, 2000, vec![group(0, Some((0, 2000)), vec![hooked])]), false);
    assert!(text.contains("2.000  SIGTERM after 0.9 s\n"), "{text}");
}

#[test]
fn a_report_names_its_node() {
    let mut report = report(Outcome::Clean, 0, vec![]);
    report.node = Some("edge-1".into());
    assert!(text(&report, false).contains(" · power-off · node edge-1 · boot 4f1c8a2e\n"));
}

#[test]
fn who_asked_is_said_as_far_as_it_is_known() {
    let said = |request: RequestReport| {
        let mut report = report(Outcome::Clean, 0, vec![]);
        report.requested_by = Some(request);
        text(&report, false).lines().nth(2).unwrap().to_owned()
    };
    let none = RequestReport::default;
    let at = "2026-11-20T03:43:00Z".parse().unwrap();
    for (request, wanted) in [
        (RequestReport { uid: Some(0), pid: Some(812), ..none() }, "Requested by uid 0, pid 812."),
        (
            RequestReport { message: Some("kernel\u{1b}[2J update".into()), ..none() },
            "Requested with the message: kernel\\x1b[2J update.",
        ),
        (
            RequestReport {
                uid: Some(1000),
                scheduled_for: Some(at),
                message: Some("back at 5".into()),
                ..none()
            },
            "Scheduled for 2026-11-20 03:43:00 UTC by uid 1000: back at 5.",
        ),
        (
            RequestReport { scheduled_for: Some(at), ..none() },
            "Scheduled for 2026-11-20 03:43:00 UTC.",
        ),
    ] {
        assert_eq!(said(request), wanted);
    }
}

#[test]
fn pods_that_were_gone_are_named_and_their_group_was_not_spared() {
    let gone = vec![pod("web", PodEnd::Gone, None, None)];
    let report = report(Outcome::Incomplete, 1500, vec![group(7, None, gone)]);
    let text = text(&report, false);
    assert!(text.contains("1 pod · not asked to terminate"), "{text}");
    assert!(
        text.contains("default/web") && text.contains("gone when the agent came back"),
        "{text}"
    );
}

#[test]
fn a_spared_group_is_one_line() {
    let spared = vec![pod("c", PodEnd::Spared, None, None)];
    let mut report = report(Outcome::Cancelled, 1500, vec![group(7, None, spared)]);
    // Which came to no SIGTERM.
    report.endpoint_drain = Some(ms(1000));
    let text = text(&report, false);
    assert!(text.ends_with("\npriority 7 and above · 1 pod · spared\n"), "{text}");
    assert!(!text.contains("before the first SIGTERM"), "{text}");
}

#[test]
fn hostile_names_cannot_move_the_cursor() {
    let hostile = pod("\u{1b}[2J\r\n\u{202e}x", PodEnd::Exited, Some(0), Some(1));
    let report = report(Outcome::Clean, 1, vec![group(0, Some((0, 1)), vec![hostile])]);
    let text = text(&report, false);
    assert!(text.contains("default/\\x1b[2J\\r\\n\\u{202e}x"), "{text}");
}

#[test]
fn colour_only_when_asked_for() {
    let report = report(Outcome::Forced, 1, vec![group(0, Some((0, 1)), vec![])]);
    assert!(!text(&report, false).contains('\u{1b}'));
    assert!(text(&report, true).starts_with("\u{1b}[33mForced shutdown"));
}
