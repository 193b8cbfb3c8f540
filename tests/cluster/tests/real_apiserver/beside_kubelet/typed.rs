//! What the walkthrough says to type beside a kubelet, with a reboot in the middle.

use winddown_node_tests::packages::repository;
use winddown_node_tests::scenario::TestResult;
use winddown_node_tests::typed::{commands, enter_all, prepare};

use super::machine::{Ends, Machine};

#[path = "../../../../../programs/tests/docs/page.rs"]
#[allow(dead_code, clippy::expect_used, reason = "made for the tests of the pages themselves")]
mod page;

const PAGE: &str = "docs/tutorials/beside-a-kubelet.md";

#[tokio::test]
async fn a_reboot_beside_a_kubelet_is_reported_as_the_walkthrough_says() -> TestResult {
    let test = "a_reboot_beside_a_kubelet_is_reported_as_the_walkthrough_says";
    let page = page::Page::read(&repository().join(PAGE));
    let blocks = page.blocks.iter().filter(|block| block.words().last() == Some(&"cluster"));
    let typed: Vec<_> = blocks.flat_map(|block| commands(PAGE, block.line, &block.lines)).collect();
    assert!(typed.iter().any(|command| command.line.contains("reboot")), "{typed:?}");

    let Some(mut machine) = Machine::set(test, Ends::Winddown).await? else { return Ok(()) };
    prepare(&machine.scenario.node)?;
    enter_all(&mut machine.scenario.node, &typed).await?;
    machine.scenario.assert_ended_in_order()?;
    Ok(())
}
