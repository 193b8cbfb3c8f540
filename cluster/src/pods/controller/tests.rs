//! Scenarios on the paused clock: a fake API, a fake node and a fake status side.

mod chaos;
mod create;
mod delete;
mod lifecycle;
mod preparing;
mod restart;
mod watching;
mod world;
