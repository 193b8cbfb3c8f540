//! What a case reports.

/// A sentence of the contract of [`Runtime`](winddown_shared::Runtime) that a runtime did not keep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{case}: {found}\n`Runtime::{method}` promises: {promise}")]
#[non_exhaustive]
pub struct BrokenPromise {
    /// The name of the case.
    pub case: &'static str,
    /// The method of the trait.
    pub method: &'static str,
    /// The sentence of the method's documentation.
    pub promise: &'static str,
    /// What the runtime did instead.
    pub found: String,
}

/// Declares the cases: a name, the method and the sentence of its documentation, and the function that tries it.
macro_rules! cases {
    ($($case:ident, $method:literal, $promise:literal, $try:path;)*) => {
        /// Every case with the method that it tries and the sentence of its documentation that it is about.
        pub const ALL: &[(&str, &str, &str)] = &[$((stringify!($case), $method, $promise)),*];

        $(
            #[doc = concat!("`Runtime::", $method, "`: ", $promise)]
            ///
            /// # Errors
            /// The runtime does not keep this promise.
            pub async fn $case<S: RuntimeUnderTest>(subject: &S) -> Result<(), BrokenPromise> {
                let (case, method, promise) = (stringify!($case), $method, $promise);
                let broken = |found| BrokenPromise { case, method, promise, found };
                let limit = 10 * S::PATIENCE;
                let tried = PATIENCE.scope(S::PATIENCE, $try(subject));
                let late = |_| Err(format!("the case is not over after {limit:?}"));
                timeout(limit, tried).await.unwrap_or_else(late).map_err(broken)
            }
        )*

        /// Tries every case, each on a subject of its own, and returns the promises that were broken.
        pub async fn try_all<S: RuntimeUnderTest>(mut make: impl AsyncFnMut() -> S) -> Vec<BrokenPromise> {
            let mut broken = Vec::new();
            $(broken.extend($case(&make().await).await.err());)*
            broken
        }
    };
}
pub(crate) use cases;

/// Fails the case with this text unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($found:tt)+) => {
        if !$holds {
            return Err(format!($($found)+));
        }
    };
}
pub(crate) use ensure;

/// Runs a case on a tokio runtime of this thread, with timers and I/O.
///
/// # Panics
/// A promise was broken, or there is no runtime to be had.
#[allow(clippy::panic, clippy::expect_used, reason = "a case that fails is a failed test")]
pub fn run_to_end(case: impl Future<Output = Result<(), BrokenPromise>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    if let Err(broken) = runtime.expect("a tokio runtime on this thread").block_on(case) {
        panic!("{broken}");
    }
}
