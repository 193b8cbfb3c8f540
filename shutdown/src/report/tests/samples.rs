//! Builders of short sample reports, for tests here and of the rendering in programs/render/.

use std::time::Duration;

use super::{
    BudgetReport, DelayedBy, GroupReport, Outcome, PodEnd, PodReport, ShutdownReport, Trigger,
};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn pod(name: &str, end: PodEnd, asked: Option<u64>, exit: Option<u64>) -> PodReport {
    PodReport {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        priority: None,
        grace: ms(20_000),
        wanted_grace: None,
        asked: asked.map(ms),
        sigterm: asked.map(|asked| ms(asked + 3)),
        exit: exit.map(ms),
        end,
        stays_on_reboot: false,
        containers: Vec::new(),
        mounts: Vec::new(),
        error: None,
        prior_reason: None,
        remark: None,
    }
}

pub(crate) fn group(priority: i32, span: Option<(u64, u64)>, pods: Vec<PodReport>) -> GroupReport {
    GroupReport {
        priority,
        name: None,
        configured: ms(20_000),
        allowed: ms(20_000),
        latest_end: ms(30_000),
        started: span.map(|(started, _)| ms(started)),
        ended: span.map(|(_, ended)| ms(ended)),
        pods,
    }
}

pub(crate) fn report(outcome: Outcome, took: u64, groups: Vec<GroupReport>) -> ShutdownReport {
    ShutdownReport {
        api_version: "winddown.dev/v1alpha1".into(),
        kind: "ShutdownReport".into(),
        version: 1,
        trigger: Trigger::LoginManager,
        node_action: Some("powerOff".into()),
        boot_id: "4f1c8a2e".into(),
        node: None,
        started_at: "2026-11-20T03:44:00.123456789Z".parse().unwrap(),
        finished_at: "2026-11-20T03:44:08.3Z".parse().unwrap(),
        took: ms(took),
        budget: BudgetReport {
            requested: ms(30_000),
            pods: ms(30_000),
            reserve: ms(2_000),
            delay: Some(ms(32_000)),
            delayed_by: DelayedBy::LoginManager,
            delay_set_by: None,
        },
        requested_by: None,
        notice: None,
        endpoint_drain: None,
        resumed: Vec::new(),
        outcome,
        node_stayed_up: false,
        pods_unknown: false,
        groups,
        work: Vec::new(),
        unsent_statuses: Vec::new(),
        warnings: Vec::new(),
    }
}
