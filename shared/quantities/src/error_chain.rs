//! Formats an error on one line, for logs and statuses.

use std::error::Error;

/// The error followed by its causes: `starting the pod: connecting: no such file`. A cause that
/// repeats what was already said, as a few foreign errors do, is skipped.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn an_error_is_followed_by_its_causes() {
        assert_eq!(error_chain(&Outer(std::io::Error::other("inner"))), "outer: inner");
        assert_eq!(error_chain(&std::io::Error::other("alone")), "alone");
    }

    #[test]
    fn what_was_said_is_not_said_again() {
        #[derive(Debug, thiserror::Error)]
        #[error("the bus: {0}")]
        struct Repeats(#[source] Outer);
        let error = Repeats(Outer(std::io::Error::other("inner")));
        assert_eq!(error_chain(&error), "the bus: outer: inner");
    }
}
