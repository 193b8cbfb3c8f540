//! Whether a published type can grow: a field or a variant more is no breaking change of a type that is
//! `#[non_exhaustive]`. The others are listed here, with the reason. One that callers have to pass has to be made by
//! them, which `#[non_exhaustive]` alone forbids (`growth/made.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, Visibility};

use crate::rooms;

mod made;

/// The folders of the published crates.
const PUBLISHED: [&str; 9] = [
    "eviction",
    "preemption",
    "shared",
    "shared/conformance",
    "shared/host",
    "shared/quantities",
    "shutdown",
    "shutdown/notices",
    "systemd",
];

/// Types that cannot grow, and why.
const CLOSED: [(&str, &str); 5] = [
    (
        "its reader decides for each variant, so a new one is a decision for every reader",
        "ContainerKind ContainerState DelayedBy EndCause EndDetail FsLayout Garbage GateReason GateState GoDurationError Hint \
         InspectError Keep KillReason KillWhom Lifecycle LockState MachineState MemoryAvailable MemoryFigure \
         MetricValue Outcome Outlook PodEnd PodBehaviour PodEventKind PodFigures PodPhase PodStream PreemptionOutcome \
         ProbeKind ProgressPhase Proof QosClass Reclaimable ResourceName Restart RestartCondition ShutdownKind \
         ShutdownPoint StaticPods Strategy StreamRequest ThresholdValue Tone Trigger Unit UnitChange UnitOutput \
         UnitPhase UnitPlace Verdict WorkOutcome",
    ),
    (
        "a runtime or a source of one's own fills in each field: one that it does not know would be missing",
        "CommandStream ContainerStats DesiredPods DiskUse DisruptionBudget EvictionConstraints FoundContainer \
         FoundPod FsStats LimitStats MemoryStats NodeEnding NodeView Notice NoticeState PodEvent PodRef \
         PressureStats RunningPods ScheduledShutdown ShutdownRequest StatusInput StoppedContainers SwapStats Synced UnitEnd \
         UnitView VolumeStats WorkContext",
    ),
    (
        "a caller fills in each field, so that it decides on a new one",
        "AllocatableConfig Armed Capacity CloudSettings Drain DrainOrder Evidence GroupPeriod HookRule \
         JournalMarks JsonFile LocalNode LogOptions NewUnit NodeHandleParts PlanOptions PressureRule PsiTrigger Shortage \
         ShutdownBlock StateTimes Stdio ThresholdConfig UnitLimits UnitStop UsagePaths WayDown",
    ),
    (
        "the controllers and their tests make it as well as the crate",
        "BootMark BudgetReport EvictionHookRun EvictionPlan EvictionRecord FreeSpace GroupProgress GroupReport LockView \
         LoginView NoticeReport OthersMayRead OthersMayWrite PlanShrink PlannedBudget PlannedGroup \
         PlannedPodStatus PodReport PodSnapshot PressureStatus Progress RankedPodStatus RequestReport SandboxView \
         ScopeView ServiceView Setting ShutdownPlan ShutdownReport SliceView SwapStatus SystemView \
         ThresholdStatus",
    ),
    ("stand-ins and fuzzing are not for agents", "Behaviour ShutdownOutcome"),
];

/// Prints how many types can grow.
///
/// # Errors
/// A source cannot be read, a type can neither grow nor is listed, or is listed in vain.
pub(crate) fn show(repository: &Path) -> Result<()> {
    let (mut types, mut made) = (Types::default(), made::Made::default());
    for (folder, sources) in rooms::sources(repository)? {
        if !PUBLISHED.contains(&folder.as_str()) {
            continue;
        }
        for source in sources {
            let path = source.path.strip_prefix(repository).unwrap_or(&source.path);
            types.file = path.display().to_string();
            let file = syn::parse_file(&source.text);
            let file = file.with_context(|| format!("cannot read {}", types.file))?;
            types.visit_file(&file);
            made.visit_file(&file);
        }
    }
    let mut wrong = types.wrong(&CLOSED);
    wrong.extend(made.wrong(&types.open));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{:>7}  published types that can grow", types.open.len());
    println!("{:>7}  that cannot, each with the reason", types.closed.len());
    Ok(())
}

/// The types that other crates could make or match.
#[derive(Default)]
struct Types {
    file: String,
    /// The places of those that can grow, by name.
    open: BTreeMap<String, String>,
    /// The places of those that cannot grow, by name.
    closed: BTreeMap<String, String>,
}

// === impl Types ===

impl Types {
    fn note(&mut self, name: &syn::Ident, attributes: &[Attribute]) {
        let can_grow = attributes.iter().any(|one| one.path().is_ident("non_exhaustive"));
        let types = if can_grow { &mut self.open } else { &mut self.closed };
        types.insert(name.to_string(), format!("{}:{}", self.file, name.span().start().line));
    }

    /// What the rule does not allow, one line each.
    fn wrong(&self, closed: &[(&str, &str)]) -> Vec<String> {
        let listed: BTreeSet<&str> =
            closed.iter().flat_map(|(_, names)| names.split_whitespace()).collect();
        let unlisted = self.closed.iter().filter(|(name, _)| !listed.contains(name.as_str()));
        let unlisted = unlisted.map(|(name, place)| {
            format!(
                "{place}: {name} cannot grow: make it #[non_exhaustive], with a `new` if users make it, or say why \
                 not in growth.rs"
            )
        });
        let needless = listed.iter().filter(|name| !self.closed.contains_key(**name));
        let needless =
            needless.map(|name| format!("{name} can grow, or is gone: take it from growth.rs"));
        unlisted.chain(needless).collect()
    }
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let is_public = |vis: &Visibility| matches!(vis, Visibility::Public(_));
        let Fields::Named(fields) = &item.fields else { return };
        // With a private field, no other crate can make it, and each pattern needs `..`.
        if is_public(&item.vis) && fields.named.iter().all(|field| is_public(&field.vis)) {
            self.note(&item.ident, &item.attrs);
        }
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        if matches!(item.vis, Visibility::Public(_)) {
            self.note(&item.ident, &item.attrs);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let is_test = item.attrs.iter().any(|one| one.path().is_ident("cfg"));
        if !is_test {
            visit::visit_item_mod(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_cannot_grow_is_named_unless_it_is_listed_and_a_needless_entry_is_too() {
        let mut types = Types { file: "lib.rs".to_owned(), ..Types::default() };
        let text = "pub struct A { pub a: u8 }\n#[non_exhaustive] pub struct B { pub b: u8 }\n\
                    pub struct C { pub c: u8, d: u8 }\npub enum E { One }\nstruct F { pub f: u8 }\npub struct G(pub u8);";
        types.visit_file(&syn::parse_file(text).unwrap());
        assert_eq!((types.open.len(), types.closed.len()), (1, 2), "{:?}", types.closed);
        let wrong = types.wrong(&[("why", "E B")]);
        assert!(wrong[0].starts_with("lib.rs:1: A cannot grow"), "{wrong:?}");
        assert_eq!(wrong[1..], ["B can grow, or is gone: take it from growth.rs"]);
    }

    #[test]
    fn each_published_type_can_grow_or_says_why_not() {
        show(&crate::repository()).unwrap();
    }

    #[test]
    fn the_folders_are_those_of_the_published_crates() {
        let root = crate::repository();
        let folder = |one: &serde_json::Value| {
            let manifest = Path::new(one["manifest_path"].as_str().unwrap()).parent().unwrap();
            manifest.strip_prefix(&root).unwrap().display().to_string()
        };
        let published = crate::published::published(&root).unwrap();
        assert_eq!(
            PUBLISHED.map(str::to_owned).into_iter().collect::<BTreeSet<_>>(),
            published.values().map(folder).collect()
        );
    }
}
