//! Who owns the cordon and the taint.

use serde_json::json;

use super::super::cordon::*;
use super::*;

fn mark(boot: &str, reason: CordonReason) -> Mark {
    Mark { boot: boot.into(), since: "2027-01-15T08:00:00Z".into(), reason, released: false }
}

fn shutdown() -> Mark {
    mark(BOOT, CordonReason::Shutdown)
}

fn released(mark: Mark) -> Mark {
    Mark { released: true, ..mark }
}

const BOTH: [Barrier; 2] = [Barrier::Cordon, Barrier::Taint];

fn server(barrier: Barrier, set: bool, mark: Option<&Mark>) -> Node {
    let mark = mark.map(|mark| serde_json::to_string(mark).unwrap()).unwrap_or_default();
    let (annotation, spec) = match barrier {
        Barrier::Cordon => (CORDONED_BY, json!({ "unschedulable": set })),
        Barrier::Taint => {
            let mut taints = vec![
                json!({ "key": "theirs", "effect": "NoSchedule" }),
                // The same key, but not this agent's taint.
                json!({ "key": TAINT, "effect": "NoExecute" }),
            ];
            if set {
                taints.insert(
                    0,
                    json!({ "key": TAINT, "value": "shutdown", "effect": "NoSchedule" }),
                );
            }
            (TAINTED_BY, json!({ "taints": taints }))
        }
    };
    node(json!({
        "metadata": { "uid": "u1", "resourceVersion": "7", "annotations": { annotation: mark } },
        "spec": spec,
    }))
}

fn managed_by(mut node: Node, managers: &[&str]) -> Node {
    let entries = managers.iter().map(|manager| {
        serde_json::from_value(json!({
            "manager": manager, "operation": "Update",
            "fieldsV1": { "f:spec": { "f:unschedulable": {} } },
        }))
        .unwrap()
    });
    node.metadata.managed_fields = Some(entries.collect());
    node
}

#[test]
fn every_combination_of_wish_and_node_has_one_step() {
    use CordonReason::{Drain, Shutdown};
    let old = mark("boot-0", Shutdown);
    let drain = mark(BOOT, Drain);
    for barrier in BOTH {
        let (now, of) = (shutdown(), |set, mark: Option<&Mark>| server(barrier, set, mark));
        let wanted_mark = Some(&now);
        let cordon = CordonStep::Set(shutdown());
        let table = [
            ("nothing asked, nothing there", None, of(false, None), CordonStep::Nothing),
            ("a person's cordon stays", None, of(true, None), CordonStep::Nothing),
            ("asked, and free", wanted_mark, of(false, None), cordon.clone()),
            ("asked, and a person was first", wanted_mark, of(true, None), CordonStep::Nothing),
            ("asked, and done", wanted_mark, of(true, Some(&now)), CordonStep::Nothing),
            (
                "asked, and done for another reason",
                wanted_mark,
                of(true, Some(&drain)),
                CordonStep::Nothing,
            ),
            (
                "asked, and still there from before the boot",
                wanted_mark,
                of(true, Some(&old)),
                CordonStep::Nothing,
            ),
            (
                "taken back meanwhile",
                wanted_mark,
                of(false, Some(&now)),
                CordonStep::Release(shutdown()),
            ),
            (
                "taken back and noted",
                wanted_mark,
                of(false, Some(&released(now.clone()))),
                CordonStep::Nothing,
            ),
            (
                "taken back and made anew",
                wanted_mark,
                of(true, Some(&released(now.clone()))),
                CordonStep::Nothing,
            ),
            ("taken back at an earlier boot", wanted_mark, of(false, Some(&old)), cordon.clone()),
            (
                "taken over at an earlier boot",
                wanted_mark,
                of(true, Some(&released(old.clone()))),
                CordonStep::Forget,
            ),
            ("over: ours is undone", None, of(true, Some(&now)), CordonStep::Undo),
            ("after the boot: ours is undone", None, of(true, Some(&old)), CordonStep::Undo),
            ("over, but taken back before", None, of(false, Some(&now)), CordonStep::Forget),
            (
                "over, but a person's now",
                None,
                of(true, Some(&released(now.clone()))),
                CordonStep::Forget,
            ),
        ];
        for (what, wanted_mark, node, step) in table {
            assert_eq!(
                decide(barrier, wanted_mark, &node, true, FIELD_MANAGER),
                step,
                "{barrier:?}: {what}"
            );
        }
    }
}

#[test]
fn our_own_cordon_waits_for_the_node_to_be_ready() {
    for barrier in BOTH {
        let node = server(barrier, true, Some(&shutdown()));
        assert_eq!(decide(barrier, None, &node, false, FIELD_MANAGER), CordonStep::Nothing);
        assert_eq!(decide(barrier, None, &node, true, FIELD_MANAGER), CordonStep::Undo);
    }
}

#[test]
fn the_servers_memory_of_who_wrote_tells_a_cordon_that_was_taken_back_and_made_anew() {
    let node = server(Barrier::Cordon, true, Some(&shutdown()));
    let theirs = managed_by(node.clone(), &["kubectl-cordon"]);
    assert_eq!(decide(Barrier::Cordon, None, &theirs, true, FIELD_MANAGER), CordonStep::Forget);
    assert_eq!(
        decide(Barrier::Cordon, Some(&shutdown()), &theirs, true, FIELD_MANAGER),
        CordonStep::Release(shutdown())
    );
    for managers in [&["winddown"][..], &["kubectl-cordon", "winddown"]] {
        assert_eq!(
            decide(Barrier::Cordon, None, &managed_by(node.clone(), managers), true, FIELD_MANAGER),
            CordonStep::Undo
        );
    }
    // An agent of another product is another manager.
    let by_winddown = managed_by(node.clone(), &["winddown"]);
    assert_eq!(decide(Barrier::Cordon, None, &by_winddown, true, "my-agent"), CordonStep::Forget);
}

#[test]
fn an_unreadable_mark_is_ignored() {
    let mut node = server(Barrier::Cordon, true, None);
    node.metadata.annotations = Some([(CORDONED_BY.to_owned(), "yes".to_owned())].into());
    assert_eq!(decide(Barrier::Cordon, None, &node, true, FIELD_MANAGER), CordonStep::Nothing);
}

#[test]
fn every_patch_names_the_node_and_the_version_it_was_made_for() {
    for (barrier, step) in BOTH.into_iter().flat_map(|barrier| {
        let steps = [
            CordonStep::Set(shutdown()),
            CordonStep::Undo,
            CordonStep::Release(shutdown()),
            CordonStep::Forget,
        ];
        steps.map(|step| (barrier, step))
    }) {
        let node = server(barrier, false, None);
        let patch = patch(barrier, &step, &node).unwrap();
        assert_eq!(patch["metadata"]["uid"], "u1");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let touches = matches!(step, CordonStep::Set(_) | CordonStep::Undo);
        assert_eq!(patch.get("spec").is_some(), touches, "{step:?}");
    }
    assert_eq!(patch(Barrier::Cordon, &CordonStep::Nothing, &Node::default()), None);
}

#[test]
fn the_mark_says_who_when_and_why() {
    let node = server(Barrier::Cordon, false, None);
    let patch = patch(Barrier::Cordon, &CordonStep::Set(shutdown()), &node).unwrap();
    let text = patch["metadata"]["annotations"][CORDONED_BY].as_str().unwrap();
    assert_eq!(text, r#"{"boot":"boot-1","since":"2027-01-15T08:00:00Z","reason":"shutdown"}"#);
}

#[test]
fn only_our_own_taint_is_put_on_and_taken_off() {
    let keys = |set: bool, step: &CordonStep| {
        let patch = patch(Barrier::Taint, step, &server(Barrier::Taint, set, None)).unwrap();
        let taints = patch["spec"]["taints"].as_array().unwrap().clone();
        let text = |taint: &serde_json::Value| {
            ["key", "value", "effect"]
                .map(|field| taint[field].as_str().unwrap_or_default().to_owned())
        };
        taints.iter().map(text).map(|text| text.join(" ")).collect::<Vec<_>>()
    };
    let theirs = ["theirs  NoSchedule", "winddown.dev/cordoned  NoExecute"];
    let ours = "winddown.dev/cordoned shutdown NoSchedule";
    let all: Vec<_> = theirs.into_iter().chain([ours]).collect();
    // Applying it twice is the same as once.
    for set in [false, true] {
        assert_eq!(keys(set, &CordonStep::Set(shutdown())), all);
        assert_eq!(keys(set, &CordonStep::Undo), theirs);
    }
}
