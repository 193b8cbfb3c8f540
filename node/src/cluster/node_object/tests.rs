use super::*;

fn waiting(why: &str) -> LockState {
    LockState::Waiting { why: why.into() }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_unprotected_after_a_whole_minute_without_the_lock_and_says_why() {
    let mut since = None;
    let mut after = async |seconds, lock: &LockState| {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        let at = unheld(lock, &mut since);
        unprotected(lock, at)
    };
    let (gone, refused) = (waiting("logind does not answer"), waiting("logind refuses"));
    assert_eq!(after(0, &gone).await, None);
    assert_eq!(after(59, &refused).await, None, "another reason is the same minute");
    assert_eq!(after(1, &refused).await.as_deref(), Some("logind refuses"));
    assert_eq!(after(3600, &gone).await.as_deref(), Some("logind does not answer"));
    assert_eq!(after(0, &LockState::Held).await, None, "at once");
    assert_eq!(after(59, &gone).await, None, "a new minute begins");
    assert_eq!(after(59, &LockState::Held).await, None);
    assert_eq!(after(0, &LockState::Released).await, None);
    let text = after(60, &LockState::Released).await.unwrap();
    assert_eq!(text, "the lock was released, and the node is still up");
}
