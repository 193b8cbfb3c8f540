//! In any order of changes, what others wrote survives and what this agent owns ends up right.

use proptest::prelude::*;
use serde_json::json;

use super::super::conditions::{self, NodeHealth};
use super::super::cordon::{self, Barrier, CordonReason, Mark};
use super::super::managed_keys::LAST_APPLIED;
use super::super::patch;
use super::*;

/// One change: to the node's facts, by another client, or a write of this agent.
#[derive(Clone, Debug)]
enum Move {
    Claim(u8, u8),
    Drop(u8),
    Shutdown(bool),
    Theirs(u8, u8),
    TheirCondition(u8, bool),
    Write(Write),
    /// The agent restarts.
    Restart,
}

#[derive(Clone, Copy, Debug)]
enum Write {
    Metadata,
    Status,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let write = prop_oneof![Just(Write::Metadata), Just(Write::Status)];
    let one = prop_oneof![
        (0..4_u8, 0..3_u8).prop_map(|(key, value)| Move::Claim(key, value)),
        (0..4_u8).prop_map(Move::Drop),
        any::<bool>().prop_map(Move::Shutdown),
        (0..4_u8, 0..3_u8).prop_map(|(key, value)| Move::Theirs(key, value)),
        (0..2_u8, any::<bool>()).prop_map(|(kind, on)| Move::TheirCondition(kind, on)),
        write.prop_map(Move::Write),
        Just(Move::Restart),
    ];
    prop::collection::vec(one, 0..40)
}

struct World {
    facts: NodeFacts,
    health: NodeHealth,
    server: Value,
    theirs: BTreeMap<String, String>,
    their_conditions: BTreeMap<String, String>,
}

impl World {
    fn new() -> Self {
        let server = json!({ "metadata": { "uid": "u1", "resourceVersion": "1" } });
        Self {
            facts: facts(),
            health: NodeHealth::default(),
            server,
            theirs: BTreeMap::new(),
            their_conditions: BTreeMap::new(),
        }
    }

    fn make(&mut self, one: &Move) {
        match *one {
            Move::Claim(key, value) => {
                let (key, value) = (format!("ours-{key}"), value.to_string());
                self.facts.capacity.insert(key.clone(), Quantity(value.clone()));
                self.facts.annotations.insert(key.clone(), value.clone());
                self.facts.labels.insert(key, value);
            }
            Move::Drop(key) => {
                let key = format!("ours-{key}");
                self.facts.capacity.remove(&key);
                self.facts.annotations.remove(&key);
                self.facts.labels.remove(&key);
            }
            Move::Shutdown(on) => self.health.shutting_down = on,
            Move::Theirs(key, value) => self.write_theirs(&format!("their-{key}"), value),
            Move::TheirCondition(kind, on) => {
                let kind = format!("Their{kind}");
                let status = if on { "True" } else { "False" };
                merge(
                    &mut self.server,
                    &json!({ "status": { "conditions": [{ "type": kind, "status": status }] } }),
                );
                self.their_conditions.insert(kind, status.to_owned());
            }
            Move::Write(write) => {
                self.write(write);
            }
            // The record is on the Node object, and an agent that starts knows nothing else.
            Move::Restart => {}
        }
    }

    fn write_theirs(&mut self, key: &str, value: u8) {
        let value = value.to_string();
        let mut taints = self.server["spec"]["taints"].as_array().cloned().unwrap_or_default();
        taints.retain(|taint| taint["key"] != key);
        taints.push(json!({ "key": key, "value": value, "effect": "NoSchedule" }));
        let patch = json!({
            "metadata": { "labels": { key: value }, "annotations": { key: value } },
            "spec": { "taints": taints },
            "status": { "capacity": { key: value } },
        });
        merge(&mut self.server, &patch);
        self.theirs.insert(key.to_owned(), value);
    }

    /// Returns whether there was something to write.
    fn write(&mut self, write: Write) -> bool {
        let node = node(self.server.clone());
        let server = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        let wanted = conditions::wanted(&self.health, server.unwrap_or_default());
        let patch = match write {
            Write::Metadata => patch::metadata(&self.facts, &node),
            Write::Status => patch::status(&self.facts, &wanted, &node, &time(9), false),
        };
        if let Some(patch) = &patch {
            merge(&mut self.server, patch);
        }
        patch.is_some()
    }

    fn settle(&mut self) {
        for write in [Write::Status, Write::Metadata] {
            self.write(write);
        }
    }
}

proptest! {
    #[test]
    fn what_others_wrote_survives_and_ours_is_as_the_facts_say(moves in moves()) {
        let mut world = World::new();
        for one in moves {
            world.make(&one);
            for (key, value) in &world.theirs {
                prop_assert_eq!(&world.server["metadata"]["labels"][key], value);
                prop_assert_eq!(&world.server["metadata"]["annotations"][key], value);
                prop_assert_eq!(&world.server["status"]["capacity"][key], value);
            }
        }
        world.settle();
        for write in [Write::Status, Write::Metadata] {
            prop_assert!(!world.write(write), "one write of each kind is enough: {write:?}");
        }
        let server = node(world.server.clone());
        let mut labels = server.metadata.labels.unwrap_or_default();
        labels.retain(|key, _| !key.starts_with("their-"));
        prop_assert_eq!(&labels, &world.facts.labels);
        let mut notes = server.metadata.annotations.unwrap_or_default();
        notes.retain(|key, _| !key.starts_with("their-") && key != LAST_APPLIED);
        prop_assert_eq!(&notes, &world.facts.annotations);
        let taints = server.spec.and_then(|spec| spec.taints).unwrap_or_default();
        prop_assert_eq!(taints.len(), world.theirs.len());
        let status = server.status.unwrap_or_default();
        for (kind, value) in &world.their_conditions {
            let has = conditions::find(status.conditions.as_deref().unwrap_or_default(), kind);
            prop_assert_eq!(&has.unwrap().status, value);
        }
    }

    /// People and this agent, in any order: the agent undoes nothing that a person did last.
    #[test]
    fn a_barrier_that_a_person_made_or_took_back_stands(
        barrier in prop_oneof![Just(Barrier::Cordon), Just(Barrier::Taint)],
        acts in prop::collection::vec(0..5_u8, 0..30),
    ) {
        let mut server = json!({ "metadata": { "uid": "u1" } });
        let mut wanted_mark = false;
        let mut person = None;
        let step = |server: &mut Value, wanted_mark: bool| {
            let mark = Mark {
                boot: BOOT.into(), since: "s".into(),
                reason: CordonReason::Shutdown, released: false,
            };
            let seen = node(server.clone());
            let step = cordon::decide(barrier, wanted_mark.then_some(&mark), &seen, true, cordon::FIELD_MANAGER);
            if let Some(patch) = cordon::patch(barrier, &step, &seen) {
                merge(server, &patch);
            }
        };
        for act in acts {
            match act {
                0 | 1 => {
                    // `kubectl cordon` writes nothing on a node that is cordoned.
                    let on = act == 0;
                    if barrier.is_set(&node(server.clone())) != on {
                        // A person who removes their own cordon does not contradict the shutdown's.
                        let ours = barrier.mark_of(&node(server.clone())).is_some();
                        person = (on || ours || !wanted_mark).then_some(on);
                        server["spec"] = match barrier {
                            Barrier::Cordon => json!({ "unschedulable": on }),
                            Barrier::Taint if on => {
                                json!({ "taints": [{ "key": cordon::TAINT, "effect": "NoSchedule" }] })
                            }
                            Barrier::Taint => json!({}),
                        };
                    }
                }
                2 => {
                    // A new shutdown may cordon what a person had uncordoned before it.
                    if !wanted_mark && person == Some(false) {
                        person = None;
                    }
                    wanted_mark = true;
                }
                3 => wanted_mark = false,
                _ => step(&mut server, wanted_mark),
            }
            // The agent sees every change: it watches the node.
            step(&mut server, wanted_mark);
            step(&mut server, wanted_mark);
            let is = barrier.is_set(&node(server.clone()));
            if let Some(on) = person {
                prop_assert_eq!(is, on, "after a person said so");
            } else {
                prop_assert_eq!(is, wanted_mark);
            }
        }
    }
}
