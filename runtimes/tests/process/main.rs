//! Real containers as real processes: what the process runtime promises, seen from outside.

mod adoption;
mod bed;
mod lifecycle;
mod restarts;
mod stopping;
