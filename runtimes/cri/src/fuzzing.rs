//! Properties that must hold for any answer of the container runtime. Called by tests/fuzz.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use prost::Message as _;

use super::pod::PodState;
use super::{api, health, image, labels, list, observe, sandbox};

/// Treats the bytes as an answer; the first byte selects the call. Panics if a property is violated.
pub fn answer(answer: &[u8]) {
    let Some((&call, answer)) = answer.split_first() else { return };
    match call % 5 {
        0 => listing(answer),
        1 => container_status(answer),
        2 => sandbox_status(answer),
        3 => health_and_images(answer),
        _ => facts(answer),
    }
}

/// Taking the same listing twice gives the same state, and the state contains only what was listed.
fn listing(answer: &[u8]) {
    let sandboxes = api::ListPodSandboxResponse::decode(answer).unwrap_or_default().items;
    let Ok(listed) = api::ListContainersResponse::decode(answer) else { return };
    let ids: HashSet<String> = listed.containers.iter().map(|one| one.id.clone()).collect();
    let mut state = PodState::default();
    list::take_sandboxes(&mut state, &sandboxes);
    let (news, lost) = list::take_containers(&mut state, listed.containers.clone());
    assert!(lost.is_empty(), "nothing was known before");
    let is_listed = |id: &Arc<str>| ids.contains(&**id);
    assert!(news.iter().all(|(_, id)| is_listed(id)) && state.own.strays.iter().all(is_listed));
    let names: HashSet<&str> = state.containers.iter().map(|one| &*one.name).collect();
    assert_eq!(names.len(), state.containers.len(), "a container is there once");
    let dead: usize = state.containers.iter().map(|one| one.own.len()).sum();
    assert!(dead + state.own.strays.len() + names.len() <= listed.containers.len());
    let shown = winddown_engine::status::status(&state, "x");
    assert_eq!(shown.containers.len(), names.len());

    let newest: Vec<_> = state.containers.iter().map(newest).collect();
    let (again, lost) = list::take_containers(&mut state, listed.containers);
    assert!(lost.is_empty(), "what is listed is not lost");
    assert_eq!(newest, state.containers.iter().map(self::newest).collect::<Vec<_>>());
    assert_eq!(again.len(), news.len(), "what was not asked about is asked about again");
    let (_, lost) = list::take_containers(&mut state, Vec::new());
    assert!(lost.len() <= newest.len(), "what is gone is lost once");
}

fn newest(container: &super::pod::Container) -> Option<(Arc<str>, u32)> {
    container.run.as_ref().map(|run| (Arc::clone(&run.id), run.attempt))
}

fn container_status(answer: &[u8]) {
    let Ok(answer) = api::ContainerStatusResponse::decode(answer) else { return };
    if let Some(process) = observe::process(&answer.info) {
        assert!(process.pid > 0, "nothing but a process is ever signalled");
    }
    let status = answer.status.unwrap_or_default();
    let seen = observe::ObservedContainer::without_message(status);
    let exit = seen.exit();
    let is_over = matches!(seen.stage(), observe::ContainerStage::NeverRun);
    assert!(!is_over || exit.is_some(), "what never ran and is over has ended");
    if let Some(exit) = exit {
        assert!(!exit.reason.is_empty(), "an end has a reason");
        assert!(exit.started_at.is_none_or(|at| at.as_nanosecond() > 0));
    }
}

fn sandbox_status(answer: &[u8]) {
    let Ok(answer) = api::PodSandboxStatusResponse::decode(answer) else { return };
    let addresses = sandbox::addresses(answer.status.as_ref(), None);
    let of_family = |is_ipv6| {
        let is_one = |ip: IpAddr| ip.is_ipv6() == is_ipv6;
        addresses.iter().filter(|address| address.parse().is_ok_and(is_one)).count()
    };
    let (old, new) = (of_family(false), of_family(true));
    assert!(old <= 1 && new <= 1 && old + new == addresses.len(), "{addresses:?}");
}

fn health_and_images(answer: &[u8]) {
    if let Ok(answer) = api::StatusResponse::decode(answer) {
        let conditions = answer.status.unwrap_or_default().conditions;
        let read = health::read(&conditions);
        assert_eq!(
            read.message.is_empty(),
            read.is_well(),
            "what is wrong is said, and nothing else"
        );
    }
    if let Ok(text) = std::str::from_utf8(answer) {
        assert_ne!(image::stop_signal(text).as_deref(), Some(""), "a signal has a name");
    }
}

/// Nothing but the name has to be in a container's labels.
fn facts(answer: &[u8]) {
    let Ok(container) = api::Container::decode(answer) else { return };
    let facts = labels::read_container(&container.labels, &container.annotations);
    assert_eq!(facts.is_some(), container.labels.contains_key(labels::CONTAINER_NAME));
}

#[test]
fn any_answer_of_the_runtime_keeps_the_laws() {
    winddown_fuzz::short("cri", answer);
}
