//! The options that divide the time before a shutdown.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};
use winddown_notices::Cloud;
use winddown_shared::parse_duration;
use winddown_yaml::{Fields, Located, Position, Problem, Value as Tree, names};

use super::value::{OptionValue, Options, ValuePlace, Word, go, options, written_options};
use super::{Field, FieldReading, OptionRow, OptionSection, Top, ValueKind};
use crate::{
    Config, GuardedNamespace, InPlaceNamespace, Mode, NoticesConfig, PriorityPeriod, RuntimeKind,
    ShutdownOrder, ShutdownPeriods, Trust,
};

const PERIOD: &str = "shutdownGracePeriod";
const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";
const ORDER: &str = "shutdownOrder";
const DRAIN: &str = "shutdownEndpointDrainPeriod";
/// The longest time for all groups together.
const MAX_GROUPS_TOTAL: &str = "24h";
/// A period of a shutdown; 0 turns it off.
const PERIODS: ValueKind = ValueKind::duration("1s", MAX_GROUPS_TOTAL);

// Over the limit because it is a table: one row per option, in the order of the default file.
pub(super) fn section() -> OptionSection {
    let period = |name, kind| Top::kept_by(Box::new(Periods), name, kind).live();
    let rows = vec![
        period(PERIOD, PERIODS).doc(
            "How long the node's shutdown may be held up for the pods; 0s turns it off.\n\n\
             Pods have 30s of grace unless their manifest says otherwise. 30s lets nearly all of them \
             end by themselves, and is no longer than people wait before they reach for the power \
             switch.",
        ),
        period(CRITICAL, PERIODS).doc(
            "The final part, reserved for all but ordinary pods. With `shutdownGracePeriod` alone, a third \
             of it, at most 10s.",
        ),
        Top::choice(ORDER, |c| &mut c.shutdown.order)
            .doc(
                "What puts pods into groups. By `role`, ordinary pods end first, those of lower priority before the others; then system pods \
                 (priority 2000000000 and above, or of a DaemonSet); then what the node itself needs \
                 (priority 2000001000 and above, system pods on the host's network, static pods without \
                 a priority); then the static control plane; etcd last. By `priority`, there are two \
                 groups, as the kubelet makes them: below 2000000000, and from there on. Either way \
                 drivers of storage, devices and networks end after the pods that need them. Unset: \
                 `role` if neither period above is written, and `priority` otherwise.",
            )
            .live(),
        Top::new(DRAIN, |c| &mut c.shutdown.endpoint_drain, ValueKind::duration("0s", MAX_GROUPS_TOTAL))
            .doc(
                "How long pods are not ready before the first SIGTERM, so that load balancers turn away \
                 from them. Comes before the time above and is at most as long. When time is short, \
                 this is given up first.",
            )
            .live(),
        Top::new("shutdownReserve", |c| &mut c.shutdown.reserve, ValueKind::duration("0s", "5m"))
            .doc(
                "What is kept back after the pods' time for their last status and the report. Never \
                 more than a tenth of what logind gives.",
            )
            .live(),
        period(BY_PRIORITY, ValueKind::list::<PriorityPeriod>())
            .doc(
                "Groups of your own. Each has the pods from its priority up to the next group's; the \
                 lowest takes those below it as well. Remove `shutdownGracePeriod`, \
                 `shutdownGracePeriodCriticalPods` and `shutdownOrder`, which this replaces.",
            )
            .example(
                "- priority: 0\n  shutdownGracePeriodSeconds: 20\n\
                 - priority: 10000\n  shutdownGracePeriodSeconds: 20\n\
                 - priority: 2000000000\n  shutdownGracePeriodSeconds: 10",
            ),
        Top::new("shutdownNotices", |c| &mut c.notices, ValueKind::object::<NoticesConfig>()).doc(
            "Who may announce when this node goes away, apart from the login manager and an operator \
             (`winddown drain --deadline`). The pods are then ended in the same order, in \
             the time that the notice leaves.",
        ),
        Top::new("reportsKept", |c| &mut c.reports_kept, ValueKind::integer(1, 1000))
            .doc("How many shutdown reports are kept."),
        Top::new("shutdownGuard", |c| &mut c.shutdown_guard, ValueKind::list::<GuardedNamespace>())
            .doc(
                "Namespaces whose pods may hold shutdowns: while one runs with the label \
                 `winddown.dev/shutdown-guard: \"true\"`, logind refuses them, for as long as is written here.",
            )
            .example("- namespace: batch\n  timeout: 2h")
            .live(),
        Top::new("rebootInPlace", |c| &mut c.shutdown.in_place, ValueKind::list::<InPlaceNamespace>())
            .doc(
                "Namespaces whose pods may stay while the node reboots: one with the annotation \
                 `winddown.dev/on-reboot: restart` ends with the others and does not fail; it starts again on this \
                 node, under the same UID and with its volumes. Has no effect with `mode: companion`.",
            )
            .example("- namespace: databases")
            .live(),
        Top::new("startGroupTimeout", |c| &mut c.start_group_timeout, PERIODS).doc(
            "Lets the pods start after a boot in the reverse of the order in which they end: a group starts when the \
             one before it is ready, or after this time at the latest. 0s starts all at once. Has no effect with \
             `mode: companion`, where a kubelet starts the pods.",
        ),
    ];
    OptionSection { title: "Shutdown", rows, relate }
}

impl Word for ShutdownOrder {
    const ALL: &'static [(&'static str, Self)] =
        &[("role", Self::Role), ("priority", Self::Priority)];
}

impl Options for PriorityPeriod {
    fn rows() -> Vec<OptionRow<Self>> {
        let priorities = ValueKind::integer(i32::MIN.into(), i32::MAX.into());
        vec![
            OptionRow::<Self>::new("priority", |group| &mut group.priority, priorities)
                .doc("The lowest priority of the group's pods.")
                .required(),
            OptionRow::<Self>::new(
                "shutdownGracePeriodSeconds",
                |group| &mut group.period,
                ValueKind::seconds(0, 86_400),
            )
            .doc("The group's time.")
            .required(),
        ]
    }

    fn conflict(&self, other: &Self) -> Option<String> {
        let twice = self.priority == other.priority;
        twice.then(|| format!("the priority {} is listed twice: keep one entry", self.priority))
    }
}

impl Options for InPlaceNamespace {
    fn rows() -> Vec<OptionRow<Self>> {
        vec![
            OptionRow::<Self>::new("namespace", |in_place| &mut in_place.namespace, ValueKind::ANY_TEXT)
                .doc("The namespace of the pods.")
                .required()
                .check(namespace),
            OptionRow::<Self>::new("survive", |in_place| &mut in_place.survive, ValueKind::Flag).doc(
                "Whether they may also run on through a soft-reboot, with `winddown.dev/on-reboot: survive`. Needs \
                 `runtime: systemd` and systemd 257; counts for pods that start after the agent has been started again.",
            ),
        ]
    }

    fn conflict(&self, other: &Self) -> Option<String> {
        twice(&self.namespace, &other.namespace)
    }
}

/// Returns an error if two entries have the same namespace.
fn twice(one: &str, other: &str) -> Option<String> {
    (one == other).then(|| format!("the namespace {one} is listed twice: keep one entry"))
}

impl Options for GuardedNamespace {
    fn rows() -> Vec<OptionRow<Self>> {
        vec![
            OptionRow::<Self>::new(
                "namespace",
                |guarded| &mut guarded.namespace,
                ValueKind::ANY_TEXT,
            )
            .doc("The namespace of the pods.")
            .required()
            .check(namespace),
            OptionRow::<Self>::new(
                "timeout",
                |guarded| &mut guarded.timeout,
                ValueKind::duration("1s", MAX_GROUPS_TOTAL),
            )
            .doc("How long a pod may, from when it first asks.")
            .required(),
        ]
    }

    fn conflict(&self, other: &Self) -> Option<String> {
        twice(&self.namespace, &other.namespace)
    }
}

fn namespace(_: &str, text: &str) -> Option<String> {
    (!names::is_dns_label(text)).then(|| format!("`{text}` is no namespace: write such as batch"))
}

impl Word for Option<Cloud> {
    const ALL: &'static [(&'static str, Self)] = &[
        ("none", None),
        (Cloud::Aws.as_str(), Some(Cloud::Aws)),
        (Cloud::Azure.as_str(), Some(Cloud::Azure)),
        (Cloud::Gcp.as_str(), Some(Cloud::Gcp)),
    ];
}

impl Options for NoticesConfig {
    fn rows() -> Vec<OptionRow<Self>> {
        let endpoints = ValueKind::Text { pattern: "^http://[-A-Za-z0-9.:\\[\\]]+/?$" };
        vec![
            OptionRow::<Self>::choice("cloud", |notices| &mut notices.cloud).doc(
                "Whose metadata service is asked: `aws` (spot interruption, maintenance), `azure` \
                 (scheduled events), `gcp` (preemption, maintenance) or `none`.",
            ),
            OptionRow::<Self>::new("pollInterval", |notices| &mut notices.poll, ValueKind::INTERVAL)
                .doc("How often it is asked.")
                .zero_is_unset(),
            OptionRow::<Self>::new("metadataEndpoint", |notices| &mut notices.endpoint, endpoints)
                .doc("Replaces the service's own address.")
                .check(metadata_endpoint)
                .example("http://169.254.169.254"),
            OptionRow::<Self>::new("file", |notices| &mut notices.file, ValueKind::PATH).trusted(Trust::Nothing)
                .doc(
                    "Gives notice while it is there: it holds how long the node has (90s) or until when \
                     (2026-01-31T12:00:00Z).",
                )
                .example("/run/winddown/notice"),
        ]
    }
}

fn metadata_endpoint(_: &str, text: &str) -> Option<String> {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b".-:[]".contains(&b);
    let host = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    let valid = host.is_some_and(|host| !host.is_empty() && host.bytes().all(valid));
    (!valid).then(|| {
        format!(
            "`{text}` is no address of a metadata service: write http://HOST or http://HOST:PORT, \
             without a path"
        )
    })
}

impl OptionValue for NoticesConfig {
    fn read(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Self> {
        fields.below(field.name, options)
    }

    fn written(&self, _: &Field) -> Json {
        written_options(self)
    }
}

/// The place of the kubelet's three options, which form one value.
struct Periods;

impl ValuePlace<Config> for Periods {
    fn read(&self, field: &Field, fields: &mut Fields<'_, '_>, to: &mut Config) -> bool {
        let periods = &mut to.shutdown.periods;
        if let (PERIOD | CRITICAL, ShutdownPeriods::Total { total, critical }) =
            (field.name, &mut *periods)
        {
            let place = if field.name == PERIOD { total } else { critical };
            return period(field, fields).inspect(|period| *place = *period).is_some();
        }
        let Some(mut groups) = Vec::<PriorityPeriod>::read(field, fields) else { return false };
        let at = fields.key_at(BY_PRIORITY).unwrap_or(fields.at());
        if let ShutdownPeriods::Total { total, critical } = periods
            && [(PERIOD, total), (CRITICAL, critical)]
                .iter()
                .any(|(key, period)| fields.has(key) && !period.is_zero())
        {
            // The kubelet's message, because users search for it.
            let what = "invalid configuration: Cannot specify both shutdownGracePeriodByPodPriority \
                        and shutdownGracePeriod at the same time; remove one of them";
            fields.fail(BY_PRIORITY, at, what);
        }
        groups.sort_by_key(|group| group.priority);
        let sum: Duration = groups.iter().map(|group| group.period).sum();
        if parse_duration(MAX_GROUPS_TOTAL).is_ok_and(|most| sum > most) {
            let what = format!("the groups add up to {}: at most {MAX_GROUPS_TOTAL}", go(sum));
            fields.fail(BY_PRIORITY, at, what);
        }
        if !groups.is_empty() {
            *periods = ShutdownPeriods::ByPriority(groups);
        }
        true
    }

    fn written(&self, field: &Field, of: &mut Config) -> Option<Json> {
        match (field.name, &of.shutdown.periods) {
            (PERIOD, ShutdownPeriods::Total { total, .. }) => Some(json!(go(*total))),
            (CRITICAL, ShutdownPeriods::Total { critical, .. }) => Some(json!(go(*critical))),
            (BY_PRIORITY, ShutdownPeriods::ByPriority(groups)) => Some(groups.written(field)),
            _ => None,
        }
    }

    fn copy(&self, from: &mut Config, to: &mut Config) {
        to.shutdown.periods.clone_from(&from.shutdown.periods);
    }
}

fn period(field: &Field, fields: &mut Fields<'_, '_>) -> Option<Duration> {
    let Located { value, at } = fields.duration(field.name)?;
    if !value.is_zero() && value < Duration::from_secs(1) {
        // The kubelet's message.
        let what = format!(
            "invalid configuration: {} {{{}}} must be either zero or otherwise >= 1 sec",
            field.name,
            go(value)
        );
        fields.fail(field.name, at, what);
    }
    if parse_duration(MAX_GROUPS_TOTAL).is_ok_and(|most| value > most) {
        fields.fail(
            field.name,
            at,
            format!("{} is too long: at most {MAX_GROUPS_TOTAL}", go(value)),
        );
    }
    Some(value)
}

fn relate(fields: &mut Fields<'_, '_>, config: &mut Config, reading: &mut FieldReading) {
    let shutdown = &mut config.shutdown;
    let [period_at, critical_at, order_at] =
        [PERIOD, CRITICAL, ORDER].map(|key| fields.key_at(key).filter(|_| fields.has(key)));
    if let ShutdownPeriods::Total { total, critical } = &mut shutdown.periods {
        relate_total(fields, (total, period_at), (critical, critical_at), reading.kubelet);
    }
    if let Some(list) = fields.node(BY_PRIORITY).filter(|_| reading.kubelet)
        && let (Tree::List(items), ShutdownPeriods::ByPriority(groups)) =
            (&list.value.value, &shutdown.periods)
        && items.len() > groups.len()
    {
        let what = "has a priority twice: the last entry of each counts";
        reading.warnings.push(Problem::new(list.at, BY_PRIORITY, what));
    }
    let (drain, total) = (shutdown.endpoint_drain, shutdown.total());
    if total.is_zero() {
        let field = match shutdown.periods {
            ShutdownPeriods::Total { .. } => PERIOD,
            ShutdownPeriods::ByPriority(_) => BY_PRIORITY,
        };
        let at = fields.key_at(field).unwrap_or(fields.at());
        let what = "is 0: the node's shutdown is not delayed and no pod is ended in order";
        reading.warnings.push(Problem::new(at, field, what));
    }
    let by_priority = matches!(shutdown.periods, ShutdownPeriods::ByPriority(_));
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
        None if by_priority || period_at.is_some() || critical_at.is_some() => {
            shutdown.order = ShutdownOrder::Priority;
        }
        _ => {}
    }
    if let Some(at) = fields.key_at(DRAIN).filter(|_| drain > total) {
        let what = match total.is_zero() {
            true => {
                format!("is {}, but no pod is ended, because {PERIOD} is 0: remove it", go(drain))
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
    notices(fields, &mut config.notices, reading);
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
            false => Duration::from_secs(10.min(total.as_secs() / 3)),
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
    if config.mode == Mode::Companion || config.runtime != RuntimeKind::Systemd {
        let what = "survive is true, but pods survive a soft-reboot only as services of systemd: write \
                    `runtime: systemd`, or remove survive";
        fields.fail("rebootInPlace", at, what);
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
