//! Fake HBase cluster and ZooKeeper ensemble for tests.
//!
//! They run in the process of the test, on sockets of the loopback interface, and inject faults on
//! demand.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a broken test fails by panicking"
)]

/// The code of the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod cluster;
mod fault;
mod proxy;
mod security;
mod tls;
mod zookeeper;

pub use self::{
    cluster::{FakeCluster, FakeDiscovery, RegionSnapshot},
    fault::{FaultKind, InjectedFault},
    proxy::{ProxyFault, damaging_proxy},
    security::{FakeTokens, SaslFault},
    tls::{FakeStream, FakeTls},
    zookeeper::{FakeEnsemble, FakeSasl, SaslAnswer},
};
