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
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr) => {
        $crate::for_each_case! { [$crate::__test_of_each] ($subject) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __test_of_each {
    (($subject:expr) => $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::run_to_end(async { $crate::cases::$case(&$subject).await });
            }
        )*
    };
}
