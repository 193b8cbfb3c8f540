//! The first lines: who, whether a shutdown is under way, the lock, the pressure.

use winddown_shared::WallTime;
use winddown_shared::display::{age, clean, seconds};

use super::{Look, Page, clock, now};
use crate::{PODS_UNKNOWN, fit, paint};
use winddown_control::api::{LockState, Phase, Status};

/// Columns the labels at the left take.
const LABEL: usize = 10;

/// Rows below which only the lines that matter most are there.
const LOW: usize = 14;

impl Page<'_> {
    pub(super) fn head(&mut self, status: &Status, rows: usize) {
        let now = now(status, self.scene.older);
        self.title(status, now);
        self.shutdown(status, now);
        self.notices(status, now);
        self.lock(status, now);
        self.cluster(status, now, rows);
        self.pressure(status, rows);
        if rows < LOW {
            return;
        }
        self.plan(status);
        if let Some(last) = status.last_boot.as_ref().filter(|last| last.graceful == Some(false)) {
            self.labelled("last boot", Look::Warn, &last.text);
        }
    }

    fn title(&mut self, status: &Status, now: WallTime) {
        let node = &status.node;
        let name = clean(&node.name).into_owned();
        let mut left = vec![self.span(Look::Head, &name)];
        let mut about = format!("  winddown {}", clean(&node.version));
        if let Some(started) = node.started_at {
            about.push_str(&format!(", since {}", clock(now, started)));
        }
        if !status.runtime.name.is_empty() {
            about.push_str(&format!(", runtime {}", clean(&status.runtime.name)));
        }
        if let Some((why, _)) = self.scene.gone {
            let when = status.time.strftime("%H:%M:%S UTC");
            left.push(self.span(Look::Bad, &format!("  NO ANSWER since {when}: {}", clean(why))));
        } else {
            left.push(self.span(Look::Dim, &about));
        }
        self.two(left, vec![]);
    }

    fn shutdown(&mut self, status: &Status, now: WallTime) {
        let shutdown = &status.shutdown;
        let (mut text, look) = match shutdown.phase {
            Phase::Idle => ("none under way".to_owned(), Look::Plain),
            Phase::Running => ("UNDER WAY".to_owned(), Look::Warn),
            Phase::Cancelled => ("called off".to_owned(), Look::Warn),
            Phase::Done => ("done, the node goes down".to_owned(), Look::Warn),
            Phase::Unknown => ("unknown".to_owned(), Look::Warn),
        };
        if shutdown.phase == Phase::Running {
            let narrow = self.columns < 60;
            if let Some(since) = shutdown.since.filter(|_| !narrow) {
                text.push_str(&format!(" for {}", whole(now, since)));
            }
            if let Some(deadline) = shutdown.deadline {
                let most = if narrow { "" } else { "at most " };
                text.push_str(&format!(", {most}{} left", whole(deadline, now)));
            }
            if let (Some(since), Some(deadline)) = (shutdown.since, shutdown.deadline) {
                let millis = |from: WallTime, to: WallTime| {
                    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
                };
                let room = self.columns.saturating_sub(LABEL + text.len() + 2).min(30);
                if room >= 8 {
                    let bar = self.bar(millis(since, now), millis(since, deadline), room);
                    text.push_str(&format!("  {bar}"));
                }
            }
        }
        self.labelled("shutdown", look, &text);
    }

    /// Who says that the node goes away.
    fn notices(&mut self, status: &Status, now: WallTime) {
        for notice in &status.notices {
            let Some(deadline) = notice.deadline else { continue };
            let when = match deadline > now {
                true => format!("the node goes away in {}", whole(deadline, now)),
                false => format!("the node should have gone away at {}", clock(now, deadline)),
            };
            let far = if notice.in_force { "" } else { "; not yet acted on" };
            let look = if notice.in_force { Look::Warn } else { Look::Plain };
            let text = format!("{when}{far} ({}: {})", notice.source, notice.text);
            self.labelled("notice", look, &text);
        }
    }

    fn lock(&mut self, status: &Status, now: WallTime) {
        let lock = &status.lock;
        let why = lock.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let (text, look) = match lock.state {
            LockState::Held => {
                let since = lock.held_since.map(|then| format!(" since {}", clock(now, then)));
                let held = format!("held{}", since.unwrap_or_default());
                let wanted = seconds(lock.wanted_seconds);
                match lock.delay_seconds {
                    Some(delay) if delay < lock.wanted_seconds => {
                        let said =
                            format!("logind waits {} of the {wanted} wanted", seconds(delay));
                        (format!("{held}; {said}"), Look::Warn)
                    }
                    Some(delay) => {
                        let delay = seconds(delay);
                        (format!("{held}; logind waits {delay}, {wanted} wanted"), Look::Good)
                    }
                    None => (held, Look::Good),
                }
            }
            LockState::Waiting => (format!("NOT HELD, trying again{why}"), Look::Bad),
            LockState::Released => ("released, the node may go down".to_owned(), Look::Warn),
            LockState::Absent => (format!("none{why}"), Look::Bad),
            LockState::Unknown => ("unknown".to_owned(), Look::Warn),
        };
        self.labelled("lock", look, &text);
    }

    fn cluster(&mut self, status: &Status, now: WallTime, rows: usize) {
        let Some(cluster) = &status.cluster else { return };
        let mut told = cluster.clone();
        let since = told.api.since.take();
        let (mut text, style) = crate::cluster::summary(&told, status.time);
        if let Some(since) = since {
            text.push_str(&format!(" (since {})", clock(now, since)));
        }
        self.judged("cluster", style, &text, rows);
    }

    fn pressure(&mut self, status: &Status, rows: usize) {
        let Some(pressure) = status.pressure.as_ref().filter(|p| !p.thresholds.is_empty()) else {
            return;
        };
        let (text, style) = crate::eviction::summary(pressure);
        self.judged("pressure", style, &text, rows);
    }

    /// Where there is little room, only what is wrong is worth a line.
    fn judged(&mut self, label: &str, style: anstyle::Style, text: &str, rows: usize) {
        let look = match style {
            style if style == paint::BAD => Look::Bad,
            style if style == paint::WARN => Look::Warn,
            _ => Look::Good,
        };
        if rows >= LOW || look != Look::Good {
            self.labelled(label, look, text);
        }
    }

    /// What a shutdown would do now.
    fn plan(&mut self, status: &Status) {
        let plan = &status.shutdown_plan;
        if status.shutdown.phase != Phase::Idle {
            return;
        }
        if !plan.enabled {
            self.labelled("plan", Look::Bad, "OFF: a shutdown would not wait for the pods");
            return;
        }
        let most = seconds(plan.available_seconds.min(plan.requested_seconds));
        let groups: Vec<usize> =
            plan.groups.iter().map(|group| group.pods).filter(|pods| *pods > 0).collect();
        let pods: usize = groups.iter().sum();
        let text = match (pods, groups.len()) {
            (0, _) if status.pods_unknown => format!("{PODS_UNKNOWN}; at most {most}"),
            (0, _) => format!("nothing to end; at most {most}"),
            (1, _) => format!("at most {most} for 1 pod"),
            (pods, 1) => format!("at most {most} for {pods} pods"),
            (pods, groups) => format!("at most {most} for {pods} pods in {groups} groups"),
        };
        self.labelled("plan", Look::Plain, &text);
    }

    fn labelled(&mut self, label: &str, look: Look, text: &str) {
        let text = clean(text);
        let text = fit(&text, self.columns.saturating_sub(LABEL));
        let line = vec![self.span(Look::Head, &format!("{label:<LABEL$}")), self.span(look, &text)];
        self.two(line, vec![]);
    }
}

/// How long before `later` it was, in whole seconds.
fn whole(later: WallTime, earlier: WallTime) -> String {
    age(later.duration_since(earlier).as_secs())
}
