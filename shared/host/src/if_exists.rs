//! Of what need not exist.

use std::io;

/// What was done or found; `None` where nothing is at the path.
///
/// # Errors
/// Any other error of `result`.
pub fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_nothing_and_every_other_error_stays_one() {
        assert_eq!(if_exists(Ok(1)).unwrap(), Some(1));
        assert_eq!(if_exists::<u8>(Err(io::ErrorKind::NotFound.into())).unwrap(), None);
        let denied = if_exists::<u8>(Err(io::ErrorKind::PermissionDenied.into()));
        assert_eq!(denied.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
