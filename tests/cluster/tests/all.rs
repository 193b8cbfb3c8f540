//! Everything that talks to an API server, against the stand-in for one.

mod client;
mod companion;
mod events;
mod node;
mod pods;
mod resolve;
mod rights;
mod status;
