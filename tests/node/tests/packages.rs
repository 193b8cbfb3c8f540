//! The packages: what is in them, and the life of a node that has one, from its installation to
//! its purge; and README.md and docs/, typed into such a node.
//!
//! They are made of the program that the other node tests run, by the script that `make packages`
//! runs for a release build.

mod ansible;
mod contents;
mod image;
mod life;
mod readme;
mod rpm;
mod strangers;
mod tools;
mod upgrade;
mod walkthroughs;
mod with_a_kubelet;
