//! The order in which the containers of a pod are asked to stop that another program runs.

use std::collections::HashSet;

use tokio::sync::watch;

use super::{api, labels};

/// A container's place in the order. Dropping it lets those come that wait for the container.
#[derive(Debug)]
pub(super) struct StopTurn {
    id: String,
    /// IDs of the containers that have to have exited before.
    after: HashSet<String>,
    running: watch::Sender<HashSet<String>>,
}

/// The turns of all running containers of a pod. `sidecars` are names in the order in which they stop, after all others.
pub(super) fn of(
    running: Vec<api::Container>,
    sidecars: &[String],
) -> Vec<(api::Container, StopTurn)> {
    let place = |container: &api::Container| {
        let name = container.labels.get(labels::CONTAINER_NAME)?;
        sidecars.iter().position(|sidecar| sidecar == name)
    };
    let places: Vec<_> = running.iter().map(|one| (one.id.clone(), place(one))).collect();
    let ids = watch::Sender::new(places.iter().map(|(id, _)| id.clone()).collect());
    let turn = |container: api::Container| {
        let own = place(&container);
        // `None`, no sidecar, comes before all places.
        let before = places.iter().filter(|(_, place)| *place < own);
        let after = before.map(|(id, _)| id.clone()).collect();
        let turn = StopTurn { id: container.id.clone(), after, running: ids.clone() };
        (container, turn)
    };
    running.into_iter().map(turn).collect()
}

impl StopTurn {
    /// Resolves when the containers that come before have exited. Cancel-safe.
    pub(super) async fn comes(&self) {
        // The sender lives as long as `self`.
        let _ = self.running.subscribe().wait_for(|running| running.is_disjoint(&self.after)).await;
    }
}

impl Drop for StopTurn {
    fn drop(&mut self) {
        self.running.send_if_modified(|running| running.remove(&self.id));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn container(name: &str) -> api::Container {
        let labels = [(labels::CONTAINER_NAME.to_owned(), name.to_owned())].into();
        api::Container { id: name.to_owned(), labels, ..api::Container::default() }
    }

    #[test]
    fn sidecars_come_one_after_the_other_when_all_others_have_exited() {
        let all = ["proxy", "main", "log", "other"].map(container).to_vec();
        let mut turns = of(all, &["log".to_owned(), "proxy".to_owned()]);
        let coming = |turns: &[(api::Container, StopTurn)]| -> Vec<String> {
            let coming = turns.iter().filter(|(_, turn)| turn.comes().now_or_never().is_some());
            coming.map(|(container, _)| container.id.clone()).collect()
        };
        assert_eq!(coming(&turns), ["main", "other"]);
        turns.retain(|(container, _)| container.id != "main");
        assert_eq!(coming(&turns), ["other"]);
        turns.retain(|(container, _)| container.id != "other");
        assert_eq!(coming(&turns), ["log"]);
        turns.retain(|(container, _)| container.id != "log");
        assert_eq!(coming(&turns), ["proxy"]);
    }
}
