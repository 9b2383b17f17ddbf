//! Telnet and HTTP listeners on one port.
//!
//! A [`Server`] takes connections, bounds what each of them may hold and for how long, and speaks OpenTSDB's
//! two protocols over an engine. Texts come from the protocol crate, points and answers go to and from the
//! engine; rows and stores are unknown here.

mod config;
mod connection;
mod cors;
mod http;
mod latency;
mod metrics;
mod put_error_mapping;
mod rollups;
mod server;
mod server_state;
mod stats;
mod telnet;
mod timeout_io;

pub use config::{Limits, ServerConfig, ServerMode};
pub use cors::{Cors, CorsError};
pub use metrics::{describe_metrics, install_metrics};
pub use server::{BindError, Server, ShutdownReport};

#[cfg(test)]
mod tests;
