//! Answers to cases as text.

use std::iter::once;

use winddown_eviction::{AnswerRank, EvictionAnswer};
use winddown_preemption::{AnswerCandidate, PreemptionAnswer};
use winddown_shared::display::clean;
use winddown_shutdown::PlanAnswer;

pub(super) fn shutdown(answer: &PlanAnswer) -> Vec<String> {
    let below = winddown_render::groups(answer).into_iter().map(|line| format!("  {line}"));
    once(format!("{}:", title(answer.id.as_ref()))).chain(below).collect()
}

pub(super) fn preemption(answer: &PreemptionAnswer) -> Vec<String> {
    let what = match (&answer.error, &answer.victims[..]) {
        (Some(error), _) => error.clone(),
        (None, []) => "no pod has to terminate".to_owned(),
        (None, victims) => victims.join(", "),
    };
    let head = format!("{}: {}", title(answer.id.as_ref()), clean(&what));
    let candidates = answer.reasons.iter().flat_map(|reasons| &reasons.candidates);
    once(head).chain(candidates.map(candidate)).collect()
}

pub(super) fn eviction(answer: &EvictionAnswer) -> Vec<String> {
    let head = format!("{}: {}", title(answer.id.as_ref()), clean(&answer.order.join(", ")));
    once(head).chain(answer.pods.iter().flatten().map(rank)).collect()
}

/// The title of an answer: the id of its case, or "plan" without one.
fn title(id: Option<&serde_json::Value>) -> String {
    let id = match id {
        Some(serde_json::Value::String(id)) => id.clone(),
        None | Some(serde_json::Value::Null) => "plan".to_owned(),
        Some(other) => other.to_string(),
    };
    clean(&id).into()
}

fn candidate(pod: &AnswerCandidate) -> String {
    let AnswerCandidate { qos, distance, .. } = pod;
    let name = format!("{}/{}", clean(&pod.namespace), clean(&pod.name));
    let priority = winddown_render::priority(pod.priority);
    let ending = if pod.terminating { ", already terminating" } else { "" };
    let text = clean(&pod.text);
    format!("  {name:<30} {qos:<10} {priority:>10} {distance:>6.3}  {text}{ending}")
}

fn rank(pod: &AnswerRank) -> String {
    let name = format!("{}/{}", clean(&pod.namespace), clean(&pod.name));
    let usage = pod.usage.map_or_else(|| "-".to_owned(), |usage| usage.to_string());
    let priority = winddown_render::priority_unless_unset(pod.priority, pod.has_no_priority);
    let request = pod.request;
    let text = match (pod.verdict, pod.exceeds_request) {
        ("chosen", Some(true)) => "evicted: it exceeds its request",
        ("chosen", _) => "evicted: it comes first of those that qualify",
        (verdict, _) => winddown_render::why_it_stays(verdict).unwrap_or("kept: one pod at a time"),
    };
    format!("  {name:<30} priority {priority:>10}  uses {usage:>14} of {request:>14}  {text}")
}
