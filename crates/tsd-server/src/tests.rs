//! Both protocols over real sockets, with an engine over the memory store.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::format_push_string,
    clippy::format_collect,
    reason = "tests"
)]

mod access;
mod admin;
mod annotations;
mod audit;
mod authentication;
mod bad_texts;
mod connections;
mod documents;
mod harness;
mod health;
mod histograms;
mod hostile;
mod hostile_lines;
mod identity_limits;
mod impossible_bodies;
mod last_times;
mod malformed_heads;
mod memory;
mod pages;
mod plugins;
mod put;
mod query;
mod query_endpoints;
mod query_flow;
mod query_messages;
mod rebinding;
mod requirements;
mod response_formats;
mod rights;
mod rollups;
mod standstill;
mod telnet;
mod telnet_hold;
mod tls;
mod tls_clients;
mod tokens;
mod write_filter;
