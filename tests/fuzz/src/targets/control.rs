//! What a client sends on the control socket.

/// Holds conversations with a server. No task waits for real time: the clock goes on when all rest.
pub(super) fn conversation(request: &[u8]) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    if let Ok(runtime) = runtime {
        runtime.block_on(winddown_control::fuzzing::conversation(request));
    }
}
