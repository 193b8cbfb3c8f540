//! Warnings about a plan, to be read before it is executed.

use std::fmt;
use std::time::Duration;

use winddown_shared::{Grace, ON_REBOOT_ANNOTATION, OnReboot, PodRef};

use super::{Plan, PlannedPod, Shrink};
use crate::Role;
use crate::budget::whole_seconds;
use crate::policy::go_text;

const MAX_NAMED_PODS: usize = 5;

/// A warning about a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanWarning {
    /// There is less time than the policy asks for.
    Shrunk(Shrink),
    /// The time between pods turning not ready and their SIGTERM is shorter than the policy asks for.
    DrainCut {
        /// The configured `shutdownEndpointDrainPeriod`.
        wants: Duration,
        /// The part of it that is left.
        gets: Duration,
    },
    /// A pod asks for more time than it is guaranteed.
    GraceCut {
        /// The pod.
        pod: PodRef,
        /// Its own grace period.
        wants: Duration,
        /// The time that it is guaranteed.
        gets: Duration,
        /// The time that it gets if all groups before it stop at once.
        at_most: Duration,
    },
    /// Several pods ask for more time than they are guaranteed. They are not named, because they ask for
    /// the default or are too many.
    GracesCut {
        /// The number of pods.
        pods: usize,
        /// The least and the most that they ask for.
        want: (Duration, Duration),
        /// The least and the most that they are guaranteed.
        get: (Duration, Duration),
    },
    /// Static pods count as pods of the node itself because they have no priority.
    NoPriority {
        /// The number of such pods.
        pods: usize,
        /// One of them.
        first: PodRef,
    },
    /// Pods ask to stay over a reboot, and will not.
    NotInPlace {
        /// The number of such pods.
        pods: usize,
        /// One of them.
        first: PodRef,
    },
}

/// A pod that gets less than it asks for.
struct Cut<'a> {
    planned: &'a PlannedPod,
    wants: Duration,
    gets: Duration,
    at_most: Duration,
}

impl Plan {
    /// Returns what the operator should know in advance. If several pods ask for the default, they are
    /// counted instead of named; so are other pods if there are too many.
    pub fn warnings(&self) -> Vec<PlanWarning> {
        let mut warnings: Vec<PlanWarning> =
            self.shortened.map(PlanWarning::Shrunk).into_iter().collect();
        let wanted = self.policy.endpoint_drain();
        if self.endpoint_drain < wanted && self.pod_count() > 0 {
            warnings.push(PlanWarning::DrainCut { wants: wanted, gets: self.endpoint_drain });
        }
        let (usual, chosen): (Vec<Cut<'_>>, Vec<Cut<'_>>) =
            self.cuts().partition(|cut| cut.wants == Grace::DEFAULT);
        warnings.extend(cut_warnings(&chosen, MAX_NAMED_PODS));
        warnings.extend(cut_warnings(&usual, 1));
        warnings.extend(self.without_priority());
        warnings.extend(self.not_in_place());
        warnings
    }

    fn cuts(&self) -> impl Iterator<Item = Cut<'_>> {
        let drain = self.endpoint_drain;
        self.groups.iter().zip(self.guaranteed()).flat_map(move |(group, gets)| {
            let kept = group.kept_for_drivers(gets);
            group.pods.iter().filter_map(move |planned| {
                let gets = planned.part_of(gets, kept).max(Grace::SHORTEST);
                let wants = planned.pod.termination_grace_period().filter(|own| *own > gets)?;
                let room = whole_seconds(group.latest_end.saturating_sub(drain));
                let at_most = wants.min(room).max(gets);
                Some(Cut { planned, wants, gets, at_most })
            })
        })
    }

    fn without_priority(&self) -> Option<PlanWarning> {
        let of_node = self.groups.iter().filter(|group| group.role == Some(Role::Node));
        let mut pods = of_node
            .flat_map(|group| &group.pods)
            .filter(|planned| planned.pod.priority().is_none());
        let first = pods.next()?.pod.pod_ref().clone();
        Some(PlanWarning::NoPriority { pods: 1 + pods.count(), first })
    }

    fn not_in_place(&self) -> Option<PlanWarning> {
        let planned = self.groups.iter().flat_map(|group| &group.pods).map(|planned| &planned.pod);
        let mut pods = planned.filter(|pod| {
            let is_deleted = pod.metadata.deletion_timestamp.is_some();
            OnReboot::of(pod).is_some() && !is_deleted && !self.may_stay(pod)
        });
        let first = pods.next()?.pod_ref().clone();
        Some(PlanWarning::NotInPlace { pods: 1 + pods.count(), first })
    }
}

/// Returns one warning per pod for up to `named` pods, otherwise one warning for all.
fn cut_warnings(cuts: &[Cut<'_>], named: usize) -> Vec<PlanWarning> {
    if cuts.len() <= named {
        let one = |cut: &Cut<'_>| PlanWarning::GraceCut {
            pod: cut.planned.pod.pod_ref().clone(),
            wants: cut.wants,
            gets: cut.gets,
            at_most: cut.at_most,
        };
        return cuts.iter().map(one).collect();
    }
    let range = |of: fn(&Cut<'_>) -> Duration| {
        let times = || cuts.iter().map(of);
        (times().min().unwrap_or_default(), times().max().unwrap_or_default())
    };
    let (want, get) = (range(|cut| cut.wants), range(|cut| cut.gets));
    vec![PlanWarning::GracesCut { pods: cuts.len(), want, get }]
}

const IN_VAIN: &str = "which has no effect: rebootInPlace has to name the namespace, and restartPolicy has to be Always";

// === impl PlanWarning ===

impl fmt::Display for PlanWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shrunk(Shrink { requested, available }) => write!(
                f,
                "the groups ask for {} but only {} is available: the plan is shortened",
                time(*requested),
                time(*available)
            ),
            Self::DrainCut { wants, gets } => write!(
                f,
                "pods should be unready for {} before their SIGTERM, but only {} is available",
                time(*wants),
                time(*gets)
            ),
            Self::GraceCut { pod, wants, gets, at_most } if gets == at_most => {
                write!(f, "pod {pod} asks for {} and gets {}", time(*wants), time(*gets))
            }
            Self::GraceCut { pod, wants, gets, at_most } => write!(
                f,
                "pod {pod} asks for {} and is guaranteed {} (up to {} if earlier groups finish \
                 sooner)",
                time(*wants),
                time(*gets),
                time(*at_most)
            ),
            Self::GracesCut { pods, want, get } => {
                let usual = match *want == (Grace::DEFAULT, Grace::DEFAULT) {
                    true => ", the default,",
                    false => "",
                };
                write!(
                    f,
                    "{pods} pods ask for {}{usual} and are guaranteed {}",
                    span(want),
                    span(get)
                )
            }
            Self::NoPriority { pods: 1, first } => write!(
                f,
                "the static pod {first} has no priority, so it terminates with the pods of the \
                 node itself: write `priority: 0` into its manifest if it is an ordinary pod"
            ),
            Self::NoPriority { pods, first } => write!(
                f,
                "{pods} static pods, such as {first}, have no priority, so they terminate with \
                 the pods of the node itself: write `priority: 0` into their manifests if they \
                 are ordinary pods"
            ),
            Self::NotInPlace { pods, first } => {
                let who = match pods {
                    1 => format!("pod {first} asks"),
                    pods => format!("{pods} pods, such as {first}, ask"),
                };
                write!(f, "{who} by {ON_REBOOT_ANNOTATION} to stay over a reboot, {IN_VAIN}")
            }
        }
    }
}

fn span((least, most): &(Duration, Duration)) -> String {
    match least == most {
        true => time(*least),
        false => format!("{} to {}", time(*least), time(*most)),
    }
}

/// Formats a duration as Go does, but without the zeros after whole minutes and hours: `1m`, `1m30s`.
fn time(duration: Duration) -> String {
    let text = go_text(duration);
    let text = match text.strip_suffix("m0s") {
        Some(minutes) => format!("{minutes}m"),
        None => text,
    };
    match text.strip_suffix("h0m") {
        Some(hours) => format!("{hours}h"),
        None => text,
    }
}
