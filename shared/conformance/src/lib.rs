#![doc = include_str!("../README.md")]

pub mod cases;
mod pods;
mod promise;
mod steps;
mod subject;

pub use promise::{BrokenPromise, run_to_end};
pub use subject::{PodBehaviour, RuntimeUnderTest};

/// Makes one `#[test]` of each case, named after what it shows. The expression makes a new [`RuntimeUnderTest`]; it is evaluated
/// in a tokio runtime, and may await.
///
/// With `, cut_off` after it, the subject implements [`RuntimeUnderTest::cut_off`]. Without it, the case for which that is
/// needed is listed as ignored.
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr) => {
        $crate::for_each_case! {
            [$crate::__test_of_each]
            (#[ignore = "the subject cannot be cut off; `conformance_tests!(…, cut_off)` runs it"])
            ($subject)
        }
    };
    ($subject:expr, cut_off) => {
        $crate::for_each_case! { [$crate::__test_of_each] () ($subject) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __test_of_each {
    ($if_away:tt $subject:tt => $($case:ident)*) => {
        $($crate::__test! { $case $if_away $subject })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __test {
    (a_runtime_that_is_away_says_so ($($ignored:tt)+) $subject:tt) => {
        #[test]
        $($ignored)+
        fn a_runtime_that_is_away_says_so() {}
    };
    ($case:ident $if_away:tt ($subject:expr)) => {
        #[test]
        fn $case() {
            $crate::run_to_end(async { $crate::cases::$case(&$subject).await });
        }
    };
}
