//! Requests between the TSDs of a cluster, and reads that include the held rows of all of them.
//!
//! A node of `tsd.storage.ack = cluster` holds acknowledged rows until their flush. A read first asks every other
//! node for its held rows ([`ClusterReads`]), then reads the store, and merges both by commit time. The connections
//! carry frames of protocol buffers on a separate port.
//!
//! The owner of a slot makes the writes of its series ([`ForwardedWrites`]), and assigns the UIDs of its names
//! ([`NameOwners`]). When a node changes names or UIDs, all nodes drop them from their caches ([`Peers::forget`]).
//!
//! The log table decides which nodes are members, and which are fenced.

mod admission;
mod client;
mod clock_offset;
mod clocks;
mod config;
mod connection;
mod error;
#[cfg(test)]
mod fakes;
mod forward;
mod frame_writer;
mod held_query;
mod links;
mod metrics;
mod names;
mod narrow;
mod node_report;
mod peer_clock;
mod peers;
mod pending_responses;
mod reach;
mod read_slots;
mod reads;
mod request_writer;
mod row_merge;
mod server;
mod service;
mod socket;
mod standstill;
mod tls;
mod wire;

pub use self::{
    admission::{AdmissionConfig, AdmissionError, admit, note_refusal},
    client::{PeerClient, ProvenRows},
    clocks::ClockWatch,
    config::{NetConfig, NodeIdentity},
    error::{MembersError, PeerError},
    forward::{
        ClusterSlots, DrainError, ForwardConfig, ForwardReceiver, ForwardedWrites, SlotCounts,
        SlotLog,
    },
    held_query::HeldQuery,
    links::LinkWatch,
    metrics::describe_metrics,
    names::{ForgetError, ForgottenNames, NameOwners, UnacknowledgedForgetError},
    narrow::slots_of,
    node_report::{HotSlot, NodeReport},
    peers::{NodeResponse, Peers, TimedReport},
    read_slots::ReadSlots,
    reads::{ClusterReads, ReadConfig, ReadMemory},
    server::PeerServer,
    service::{NodeControl, PeerService},
    tls::{PeerTls, TlsFiles},
    wire::{VERSIONS, check_frames},
};

#[cfg(test)]
mod tests;
