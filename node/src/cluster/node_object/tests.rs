use super::*;

#[tokio::test(start_paused = true)]
async fn a_node_is_unprotected_after_a_whole_minute() {
    let mut since = None;
    let mut after = async |seconds, is_unprotected| {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        let at = counts_at(is_unprotected, &mut since);
        at.is_some_and(|at| at <= Instant::now())
    };
    assert!(!after(0, true).await);
    assert!(!after(59, true).await);
    assert!(after(1, true).await);
    assert!(after(3600, true).await);
    assert!(!after(0, false).await, "at once");
    assert!(!after(59, true).await, "a new minute begins");
    assert!(!after(59, false).await);
    assert!(!after(0, true).await);
    assert!(after(60, true).await);
}
