//! The options that divide the time before a shutdown.

use std::path::PathBuf;
use std::time::Duration;

use winddown_notices::Cloud;
use winddown_shared::parse_duration;
use winddown_yaml::{Fields, Position, Problem, Value as Tree, names};

use crate::reference::{
    FieldReading, ListEntry, ValueKind, at_restart, go, live, options, part, words,
};
use crate::{Config, Effect, Mode, NoticesConfig, RuntimeKind};

const PERIOD: &str = "shutdownGracePeriod";
const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";
const ORDER: &str = "shutdownOrder";
const DRAIN: &str = "shutdownEndpointDrainPeriod";
/// Why [`DRAIN`] has no effect beside a kubelet.
const STAYS_READY: &str =
    "pods are ready until they are evicted: give them a `preStop` hook that sleeps";
/// The longest time for all groups together.
const MAX_GROUPS_TOTAL: &str = "24h";
/// A period of a shutdown; 0 turns it off.
const PERIODS: ValueKind = ValueKind::duration("1s", MAX_GROUPS_TOTAL);

options! {
    /// The options for the time and order of a shutdown. See [`ShutdownSettings::periods`] for the grace periods.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ShutdownSettings {
        /// How long the node's shutdown may be held up for the pods; 0s turns it off.
        ///
        /// A pod has 30s of grace unless its manifest says otherwise. 60s gives that to the ordinary pods and to those
        /// that terminate after them; the node goes down sooner if the pods exit sooner.
        // None with groups configured by priority.
        grace_period: Option<Duration> = Some(Duration::from_secs(60))
            => live(PERIOD, Effect::Everywhere).kind(PERIODS).check(period);
        /// The final part, reserved for all but ordinary pods. With `shutdownGracePeriod` alone, half of it, at most
        /// 30s.
        // At most `grace_period`. None with groups configured by priority.
        critical_grace_period: Option<Duration> = Some(Duration::from_secs(30))
            => live(CRITICAL, Effect::Everywhere).kind(PERIODS).check(period);
        /// What puts pods into groups. By `role`, ordinary pods terminate first, those of lower priority before the others;
        /// then system pods (priority 2000000000 and above, or of a DaemonSet); then what the node itself needs
        /// (priority 2000001000 and above, system pods on the host's network, static pods without a priority); then the
        /// static control plane; etcd last. By `priority`, there are two groups, as the kubelet makes them: below
        /// 2000000000, and from there on. Either way drivers of storage, devices and networks terminate after the pods that
        /// need them. Unset: `role`. In a kubelet's file, and with `mode: companion`, it is `priority` if a period above is
        /// written.
        // With groups configured by priority it is always `priority`.
        order: ShutdownOrder = ShutdownOrder::Role => live(ORDER, Effect::Everywhere);
        /// How long pods are not ready before the first SIGTERM, so that load balancers turn away from them. Comes
        /// before the time above and is at most as long. When time is short, this is given up first. Beside a kubelet
        /// pods are ready until they are evicted: give them a `preStop` hook that sleeps.
        endpoint_drain: Duration = Duration::ZERO
            => live(DRAIN, Effect::NotBesideKubelet(STAYS_READY)).duration("0s", MAX_GROUPS_TOTAL);
        /// What is kept back after the pods' time for their last status and the report. Never more than a tenth of what
        /// logind gives.
        reserve: Duration = Duration::from_secs(2)
            => live("shutdownReserve", Effect::Everywhere).duration("0s", "5m");
        /// Groups of your own. Each has the pods from its priority up to the next group's; the lowest takes those below
        /// it as well. Remove `shutdownGracePeriod`, `shutdownGracePeriodCriticalPods` and `shutdownOrder`, which this
        /// replaces.
        // Ascending, without duplicate priorities, at most 24 h in total.
        by_priority: Vec<PriorityPeriod> = Vec::new()
            => live(BY_PRIORITY, Effect::Everywhere).example(
                "- priority: 0\n  shutdownGracePeriodSeconds: 20\n\
                 - priority: 10000\n  shutdownGracePeriodSeconds: 20\n\
                 - priority: 2000000000\n  shutdownGracePeriodSeconds: 10",
            );
        /// Who may announce when this node goes away, apart from the login manager and an operator (`winddown drain
        /// --deadline`). The pods are then terminated in the same order, in the time that the notice leaves.
        notices: NoticesConfig = NoticesConfig::default()
            => at_restart("shutdownNotices", Effect::Everywhere);
        /// Of how many boots with a shutdown the reports are kept, ten of each at most; and how many drains' are.
        reports_kept: u32 = 20 => at_restart("reportsKept", Effect::Everywhere).integer(1, 1000);
        /// Namespaces whose pods may block shutdowns: while one runs with the label `winddown.dev/shutdown-guard:
        /// "true"`, logind refuses them, for as long as is written here.
        // Each namespace only once.
        guard: Vec<GuardedNamespace> = Vec::new()
            => live("shutdownGuard", Effect::Everywhere)
                .example("- namespace: batch\n  timeout: 2h");
        /// Namespaces whose pods may stay while the node reboots: one with the annotation `winddown.dev/on-reboot:
        /// restart` terminates with the others and does not fail; it starts again on this node, under the same UID and with
        /// its volumes.
        // Each namespace only once.
        in_place: Vec<InPlaceNamespace> = Vec::new()
            => live("rebootInPlace", Effect::PODS).example("- namespace: databases");
        /// Lets the pods start after a boot in the reverse of the order in which they terminate: a group starts when the one
        /// before it is ready, or after this time at the latest. 0s starts all at once.
        start_group_timeout: Duration = Duration::ZERO
            => at_restart("startGroupTimeout", Effect::PODS).kind(PERIODS);
    }
}

options! {
    /// One entry of `shutdownGracePeriodByPodPriority`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PriorityPeriod {
        /// The lowest priority of the group's pods.
        priority: i32 = 0 => part("priority").required();
        /// The group's time.
        period: Duration = Duration::ZERO
            => part("shutdownGracePeriodSeconds").seconds(0, 86_400).required();
    }
}

options! {
    /// One entry of `rebootInPlace`: pods of a namespace that may stay while the node reboots.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct InPlaceNamespace {
        /// The namespace of the pods.
        namespace: String = String::new() => part("namespace").required().check(namespace);
        /// Whether they may also run on through a soft-reboot, with `winddown.dev/on-reboot: survive`. Needs `runtime:
        /// systemd` and systemd 257; counts for pods that start after the agent has been started again.
        survive: bool = false => part("survive");
    }
}

options! {
    /// One entry of `shutdownGuard`: pods of a namespace that may block shutdowns.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct GuardedNamespace {
        /// The namespace of the pods.
        namespace: String = String::new() => part("namespace").required().check(namespace);
        /// How long a pod and those that replace it may, from when the first asks.
        timeout: Duration = Duration::ZERO
            => part("timeout").duration("1s", MAX_GROUPS_TOTAL).required();
    }
}

words! {
    /// How pods are grouped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ShutdownOrder {
        /// By role: ordinary pods, system pods, the node's own, control plane, etcd.
        Role = "role",
        /// By `spec.priority`, as in the kubelet.
        Priority = "priority",
    }
}

/// How the time before a shutdown is divided, in either of the kubelet's two forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShutdownPeriods {
    /// `shutdownGracePeriod` and the part of it that is reserved for critical pods. Each is 0, or 1
    /// s to 24 h; `critical` is at most `total`. A `total` of 0 turns graceful shutdown off.
    Total {
        /// The time for all pods.
        total: Duration,
        /// The final part of it, for critical pods only.
        critical: Duration,
    },
    /// `shutdownGracePeriodByPodPriority`: ascending, without duplicate priorities, at most 24 h in total.
    ByPriority(Vec<PriorityPeriod>),
}

/// Configured periods, in the kubelet's order.
impl From<ShutdownPeriods> for ShutdownSettings {
    fn from(periods: ShutdownPeriods) -> Self {
        let (grace_period, critical_grace_period, by_priority) = match periods {
            ShutdownPeriods::Total { total, critical } => (Some(total), Some(critical), Vec::new()),
            ShutdownPeriods::ByPriority(groups) => (None, None, groups),
        };
        let order = ShutdownOrder::Priority;
        Self { grace_period, critical_grace_period, order, by_priority, ..Self::default() }
    }
}

// === impl ShutdownSettings ===

impl ShutdownSettings {
    /// Returns the grace periods, in that of the kubelet's two forms in which they are configured.
    pub fn periods(&self) -> ShutdownPeriods {
        if !self.by_priority.is_empty() {
            return ShutdownPeriods::ByPriority(self.by_priority.clone());
        }
        ShutdownPeriods::Total {
            total: self.grace_period.unwrap_or_default(),
            critical: self.critical_grace_period.unwrap_or_default(),
        }
    }

    /// Returns the total time of all groups; zero means that graceful shutdown is off.
    pub fn total(&self) -> Duration {
        match self.periods() {
            ShutdownPeriods::Total { total, .. } => total,
            ShutdownPeriods::ByPriority(groups) => groups.iter().map(|group| group.period).sum(),
        }
    }
}

// === impl PriorityPeriod ===

impl ListEntry for PriorityPeriod {
    fn conflict(&self, other: &Self) -> Option<String> {
        let twice = self.priority == other.priority;
        twice.then(|| format!("the priority {} is listed twice: keep one entry", self.priority))
    }
}

// === impl InPlaceNamespace ===

impl ListEntry for InPlaceNamespace {
    fn conflict(&self, other: &Self) -> Option<String> {
        twice(&self.namespace, &other.namespace)
    }
}

// === impl GuardedNamespace ===

impl ListEntry for GuardedNamespace {
    fn conflict(&self, other: &Self) -> Option<String> {
        twice(&self.namespace, &other.namespace)
    }
}

/// Returns an error if two entries have the same namespace.
fn twice(one: &str, other: &str) -> Option<String> {
    (one == other).then(|| format!("the namespace {one} is listed twice: keep one entry"))
}

fn namespace(_: &str, text: &str) -> Option<String> {
    (!names::is_dns_label(text))
        .then(|| format!("`{text}` is no namespace: write, for example, batch"))
}

/// Checks a grace period; 0 turns it off.
fn period(name: &str, text: &str) -> Option<String> {
    let value = parse_duration(text).unwrap_or(Duration::MAX);
    if !value.is_zero() && value < Duration::from_secs(1) {
        // The kubelet's message.
        return Some(format!(
            "invalid configuration: {name} {{{text}}} must be either zero or otherwise >= 1 sec"
        ));
    }
    let too_long = parse_duration(MAX_GROUPS_TOTAL).is_ok_and(|most| value > most);
    too_long.then(|| format!("{text} is too long: at most {MAX_GROUPS_TOTAL}"))
}

pub(crate) fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, reading: &mut FieldReading) {
    let shutdown = &mut config.shutdown;
    relate_groups(fields, shutdown, reading);
    // Where a kubelet's periods are, its order is meant too.
    let as_a_kubelet = reading.kubelet || config.node.mode == Mode::Companion;
    let [period_at, critical_at, order_at] =
        [PERIOD, CRITICAL, ORDER].map(|key| fields.key_at(key).filter(|_| fields.has(key)));
    if let (Some(total), Some(critical)) =
        (&mut shutdown.grace_period, &mut shutdown.critical_grace_period)
    {
        relate_total(fields, (total, period_at), (critical, critical_at), reading.kubelet);
    }
    let (drain, total) = (shutdown.endpoint_drain, shutdown.total());
    let by_priority = !shutdown.by_priority.is_empty();
    if total.is_zero() {
        let field = if by_priority { BY_PRIORITY } else { PERIOD };
        let at = fields.key_at(field).unwrap_or(fields.at());
        let what = "is 0: the node's shutdown is not delayed and no pod is terminated in order";
        reading.warnings.push(Problem::new(at, field, what));
    }
    match order_at {
        // Check the text too: an unknown word has already been reported.
        Some(at)
            if by_priority
                && shutdown.order == ShutdownOrder::Role
                && fields.node(ORDER).is_some_and(|order| order.value.text() == Some("role")) =>
        {
            let what = format!(
                "is role, but {BY_PRIORITY} makes groups of priorities: write `{ORDER}: priority`, \
                 or remove one of them"
            );
            fields.fail(ORDER, at, what);
        }
        None if by_priority || (as_a_kubelet && (period_at.is_some() || critical_at.is_some())) => {
            shutdown.order = ShutdownOrder::Priority;
        }
        _ => {}
    }
    if let Some(at) = fields.key_at(DRAIN).filter(|_| drain > total) {
        let what = match total.is_zero() {
            true => {
                format!(
                    "is {}, but no pod is terminated, because {PERIOD} is 0: remove it",
                    go(drain)
                )
            }
            false => format!(
                "{} is longer than the shutdown grace periods together: write at most {}",
                go(drain),
                go(total)
            ),
        };
        fields.fail(DRAIN, at, what);
    }
    survivors(fields, config);
    beside_a_kubelet(config);
    notices(fields, &mut config.shutdown.notices, reading);
}

/// Groups configured by priority replace the periods.
fn relate_groups(
    fields: &mut Fields<'_, '_>,
    shutdown: &mut ShutdownSettings,
    reading: &mut FieldReading,
) {
    let Some(list) = fields.node(BY_PRIORITY) else { return };
    let Tree::List(items) = &list.value.value else { return };
    let periods = [(PERIOD, shutdown.grace_period), (CRITICAL, shutdown.critical_grace_period)];
    if periods.iter().any(|(key, period)| fields.has(key) && *period != Some(Duration::ZERO)) {
        // The kubelet's message, because users search for it.
        let what = "invalid configuration: Cannot specify both shutdownGracePeriodByPodPriority \
                    and shutdownGracePeriod at the same time; remove one of them";
        fields.fail(BY_PRIORITY, list.at, what);
    }
    let groups = &mut shutdown.by_priority;
    groups.sort_by_key(|group| group.priority);
    let sum: Duration = groups.iter().map(|group| group.period).sum();
    if parse_duration(MAX_GROUPS_TOTAL).is_ok_and(|most| sum > most) {
        let what = format!("the groups add up to {}: at most {MAX_GROUPS_TOTAL}", go(sum));
        fields.fail(BY_PRIORITY, list.at, what);
    }
    if groups.is_empty() {
        return;
    }
    if reading.kubelet && items.len() > groups.len() {
        let what = "has a priority twice: the last entry of each counts; the kubelet takes both";
        reading.warnings.push(Problem::new(list.at, BY_PRIORITY, what));
    }
    (shutdown.grace_period, shutdown.critical_grace_period) = (None, None);
}

/// Derives the part for critical pods from the total where it is not written, and checks that it is no longer.
fn relate_total(
    fields: &mut Fields<'_, '_>,
    (total, period_at): (&mut Duration, Option<Position>),
    (critical, critical_at): (&mut Duration, Option<Position>),
    kubelet: bool,
) {
    if kubelet && period_at.is_none() && critical_at.is_some() && !critical.is_zero() {
        // Its default, with which the kubelet refuses the file.
        *total = Duration::ZERO;
    }
    if period_at.is_some() && critical_at.is_none() {
        *critical = match kubelet {
            // For the kubelet, a total without a critical part means no critical part.
            true => Duration::ZERO,
            false => Duration::from_secs(30.min(total.as_secs() / 2)),
        };
    }
    if let (true, Some(at)) = (critical > total, critical_at.or(period_at)) {
        let what = format!(
            "invalid configuration: shutdownGracePeriodCriticalPods {{{}}} must be <= \
             shutdownGracePeriod {{{}}}",
            go(*critical),
            go(*total)
        );
        fields.fail(CRITICAL, at, what);
    }
}

/// Checks that pods can survive a soft-reboot: only services of systemd can.
fn survivors(fields: &mut Fields<'_, '_>, config: &Config) {
    let any = config.shutdown.in_place.iter().any(|one| one.survive);
    let Some(at) = fields.key_at("rebootInPlace").filter(|_| any) else { return };
    if config.node.mode == Mode::Companion || config.node.runtime != RuntimeKind::Systemd {
        let what = "survive is true, but pods survive a soft-reboot only as services of systemd: write \
                    `runtime: systemd`, or remove survive";
        fields.fail("rebootInPlace", at, what);
    }
}

/// Leaves out the wait for endpoints beside a kubelet: pods would stay ready for that long.
fn beside_a_kubelet(config: &mut Config) {
    if config.node.mode == Mode::Companion {
        config.shutdown.endpoint_drain = Duration::ZERO;
    }
}

/// The directories that `PrivateTmp` and `ProtectHome` of the unit hide.
const HIDDEN: [&str; 5] = ["/tmp", "/var/tmp", "/home", "/root", "/run/user"];

fn notices(fields: &Fields<'_, '_>, notices: &mut NoticesConfig, reading: &mut FieldReading) {
    let key = "shutdownNotices.metadataEndpoint";
    if let Some(endpoint) = notices.endpoint.as_mut().filter(|endpoint| endpoint.ends_with('/')) {
        endpoint.pop();
    }
    let at = fields.entry_at("shutdownNotices", "metadataEndpoint");
    if let (Some(at), Some(_), None) = (at, &notices.endpoint, notices.cloud) {
        let what = "has no cloud to go with, and no effect";
        reading.warnings.push(Problem::new(at, key, what));
    }
    let at = fields.entry_at("shutdownNotices", "pollInterval");
    // The answer comes when something changes.
    let polled = notices.cloud.filter(|cloud| *cloud != Cloud::Gcp);
    let late = polled.filter(|cloud| notices.poll >= cloud.notice());
    if let (Some(at), Some(cloud)) = (at, late) {
        let what = format!(
            "is {}, but {cloud} may give as little as {} of notice, which then comes too late: write \
             a few seconds",
            go(notices.poll),
            go(cloud.notice())
        );
        reading.warnings.push(Problem::new(at, "shutdownNotices.pollInterval", what));
    }
    let hidden = |file: &PathBuf| HIDDEN.iter().any(|folder| file.starts_with(folder));
    let at = fields.entry_at("shutdownNotices", "file");
    if let (Some(at), Some(file)) = (at, notices.file.as_ref().filter(|file| hidden(file))) {
        let what = format!(
            "{} is not the file that others write, because the unit has folders of its own in its \
             place: write for example /run/winddown/notice",
            file.display()
        );
        reading.warnings.push(Problem::new(at, "shutdownNotices.file", what));
    }
}
