//! The agent as a library and as a program, on the machine that runs the tests.

#![allow(clippy::disallowed_methods, reason = "tests read what they wrote")]

mod agent;
mod bad_input;
mod cli;
mod completion;
mod found_by_name;
mod install;
mod install_examples;
mod install_units;
mod journal;
mod live;
mod manifests;
mod manual;
mod metrics;
mod mistakes;
mod monitoring;
mod notices;
mod one_program;
mod pods;
mod release;
mod schemas;
mod secrets;
mod serving;
mod signals;
mod situations;
mod test_programs;
mod ups_hook;
mod written;
