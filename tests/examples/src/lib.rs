//! The programs in the READMEs of the libraries and in docs/embedding.md.
//!
//! `rustdoc` compiles those of one crate as one, and so all of them are this one's: as tests of the crates that
//! they are about they took a fifth of what all tests take.

#![cfg(doctest)]

#[doc = include_str!("../../../api-client/README.md")]
struct ApiClient;

#[doc = include_str!("../../../cluster/README.md")]
struct Cluster;

#[doc = include_str!("../../../companion/README.md")]
struct Companion;

#[doc = include_str!("../../../config/README.md")]
struct Config;

#[doc = include_str!("../../../control/README.md")]
struct Control;

#[doc = include_str!("../../../cri/README.md")]
struct Cri;

#[doc = include_str!("../../../engine/README.md")]
struct Engine;

#[doc = include_str!("../../../eviction/README.md")]
struct Eviction;

#[doc = include_str!("../../fakes/README.md")]
struct Fakes;

#[doc = include_str!("../../../files/README.md")]
struct Files;

#[doc = include_str!("../../../machine/README.md")]
struct Machine;

#[doc = include_str!("../../../node/README.md")]
struct Node;

#[doc = include_str!("../../../notices/README.md")]
struct Notices;

#[doc = include_str!("../../../pod-references/README.md")]
struct PodReferences;

#[doc = include_str!("../../../preemption/README.md")]
struct Preemption;

#[doc = include_str!("../../../quantities/README.md")]
struct Quantities;

#[doc = include_str!("../../../runtimes/README.md")]
struct Runtimes;

#[doc = include_str!("../../../shared/README.md")]
struct Shared;

#[doc = include_str!("../../../shim/README.md")]
struct Shim;

#[doc = include_str!("../../../shutdown/README.md")]
struct Shutdown;

#[doc = include_str!("../../../static-pods/README.md")]
struct StaticPods;

#[doc = include_str!("../../../systemd/README.md")]
struct Systemd;

#[doc = include_str!("../../../yaml/README.md")]
struct Yaml;

#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;
