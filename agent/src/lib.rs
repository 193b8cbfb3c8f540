//! The winddown agent: configuration, pod manifests, the control socket, the commands, and the
//! wiring of the controllers to the systems they drive.

pub mod api;
pub mod cli;
pub mod config;
pub mod control;
pub mod document;
pub mod manifests;
pub mod install;
pub mod render;
pub mod commands;
pub mod drill;
pub mod logging;
pub mod node;
pub mod service;
