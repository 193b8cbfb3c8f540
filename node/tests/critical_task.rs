//! An agent that has lost a task that its node depends on. A process of its own, because that is what fails.
#![cfg(all(feature = "shutdown", feature = "systemd"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use winddown_node::control::HealthApi as _;
use winddown_node::shared::testing::{FakeInhibitor, FakeRuntime};
use winddown_node::shared::{NodeHandle, Plugin, PluginName};
use winddown_node::shutdown::Policy;
use winddown_node::{BoxFuture, Node, Product, Shutdown, SystemdService, block_on};

struct Broken;

impl Plugin for Broken {
    fn name(&self) -> PluginName {
        PluginName::new("broken")
    }

    fn run(self: Box<Self>, _: NodeHandle) -> BoxFuture<'static, ()> {
        Box::pin(async { panic!("as told") })
    }
}

#[test]
fn an_agent_whose_plug_in_panics_is_not_healthy_and_ends_with_that_error() {
    let agent = async {
        let directory = tempfile::tempdir().unwrap();
        let service = SystemdService::new(&Product::new("my-agent", "1")).unwrap();
        let logind = FakeInhibitor::holding(Duration::from_secs(30));
        let shutdown = Shutdown::new(Arc::new(logind), Policy::default(), directory.path());
        let handle = shutdown.handle();
        let runtime = Arc::new(FakeRuntime::default());
        let node = Node::builder(runtime).plugin(shutdown).plugin(Broken).start().unwrap();
        let failure = service.run(&node, &handle).await.unwrap_err();
        assert_eq!(failure.to_string(), "the task `broken` panicked: as told");
        assert!(!node.health().ok());
        // A disk that hangs at the exit.
        tokio::task::spawn_blocking(|| {
            loop {
                std::thread::park();
            }
        });
    };
    block_on(agent).unwrap();
}
