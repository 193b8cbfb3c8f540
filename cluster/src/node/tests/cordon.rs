//! Whose cordon it is.

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

fn server(unschedulable: bool, mark: Option<&Mark>) -> Node {
    let mark = mark.map(|mark| serde_json::to_string(mark).unwrap());
    node(json!({
        "metadata": { "uid": "u1", "resourceVersion": "7", "annotations": { CORDONED_BY: mark.unwrap_or_default() } },
        "spec": { "unschedulable": unschedulable },
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
    let (now, of) = (shutdown(), server);
    let wish = Some(&now);
    let cordon = CordonAction::Cordon(shutdown());
    let table = [
        ("nothing asked, nothing there", None, of(false, None), CordonAction::Nothing),
        ("a person's cordon stays", None, of(true, None), CordonAction::Nothing),
        ("asked, and free", wish, of(false, None), cordon.clone()),
        ("asked, and a person was first", wish, of(true, None), CordonAction::Nothing),
        ("asked, and done", wish, of(true, Some(&now)), CordonAction::Nothing),
        ("asked, and done for another reason", wish, of(true, Some(&drain)), CordonAction::Nothing),
        (
            "asked, and still there from before the boot",
            wish,
            of(true, Some(&old)),
            CordonAction::Nothing,
        ),
        ("taken back meanwhile", wish, of(false, Some(&now)), CordonAction::Release(shutdown())),
        (
            "taken back and noted",
            wish,
            of(false, Some(&released(now.clone()))),
            CordonAction::Nothing,
        ),
        (
            "taken back and made anew",
            wish,
            of(true, Some(&released(now.clone()))),
            CordonAction::Nothing,
        ),
        ("taken back at an earlier boot", wish, of(false, Some(&old)), cordon.clone()),
        (
            "taken over at an earlier boot",
            wish,
            of(true, Some(&released(old.clone()))),
            CordonAction::Forget,
        ),
        ("over: ours is undone", None, of(true, Some(&now)), CordonAction::Uncordon),
        ("after the boot: ours is undone", None, of(true, Some(&old)), CordonAction::Uncordon),
        ("over, but taken back before", None, of(false, Some(&now)), CordonAction::Forget),
        (
            "over, but a person's now",
            None,
            of(true, Some(&released(now.clone()))),
            CordonAction::Forget,
        ),
    ];
    for (what, wish, node, step) in table {
        assert_eq!(decide(wish, &node, true), step, "{what}");
    }
}

#[test]
fn our_own_cordon_waits_for_the_node_to_be_ready() {
    let node = server(true, Some(&shutdown()));
    assert_eq!(decide(None, &node, false), CordonAction::Nothing);
    assert_eq!(decide(None, &node, true), CordonAction::Uncordon);
}

#[test]
fn the_servers_memory_of_who_wrote_tells_a_cordon_that_was_taken_back_and_made_anew() {
    let node = server(true, Some(&shutdown()));
    let theirs = managed_by(node.clone(), &["kubectl-cordon"]);
    assert_eq!(decide(None, &theirs, true), CordonAction::Forget);
    assert_eq!(decide(Some(&shutdown()), &theirs, true), CordonAction::Release(shutdown()));
    for managers in [&["winddown"][..], &["kubectl-cordon", "winddown"]] {
        assert_eq!(decide(None, &managed_by(node.clone(), managers), true), CordonAction::Uncordon);
    }
}

#[test]
fn an_unreadable_mark_is_ignored() {
    let mut node = server(true, None);
    node.metadata.annotations = Some([(CORDONED_BY.to_owned(), "yes".to_owned())].into());
    assert_eq!(decide(None, &node, true), CordonAction::Nothing);
}

#[test]
fn every_patch_names_the_node_and_the_version_it_was_made_for() {
    let node = server(false, None);
    for step in [
        CordonAction::Cordon(shutdown()),
        CordonAction::Uncordon,
        CordonAction::Release(shutdown()),
        CordonAction::Forget,
    ] {
        let patch = patch(&step, &node).unwrap();
        assert_eq!(patch["metadata"]["uid"], "u1");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let touches = matches!(step, CordonAction::Cordon(_) | CordonAction::Uncordon);
        assert_eq!(patch.get("spec").is_some(), touches, "{step:?}");
    }
    assert_eq!(patch(&CordonAction::Nothing, &node), None);
}

#[test]
fn the_mark_says_who_when_and_why() {
    let patch = patch(&CordonAction::Cordon(shutdown()), &server(false, None)).unwrap();
    let text = patch["metadata"]["annotations"][CORDONED_BY].as_str().unwrap();
    assert_eq!(text, r#"{"boot":"boot-1","since":"2027-01-15T08:00:00Z","reason":"shutdown"}"#);
}
