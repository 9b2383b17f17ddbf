//! What the TSDs of a cluster ask each other, and reads of what all of them hold.
//!
//! A node of `tsd.storage.ack = cluster` holds acknowledged rows until their flush. A read on another node
//! asks every node for them first ([`ClusterReads`]), then reads the store, and merges both by the times of
//! the commits. The connections carry frames of protocol buffers on a port of their own.
//!
//! Writes of a series are made by the node that owns its slot ([`ForwardedWrites`]). UIDs of new names are assigned
//! by the owners of their slots too ([`NameOwners`]), and what a node changes of them, all forget ([`Peers::forget`]).
//!
//! Who is a member, and who is fenced, is decided in the log table and not here.

mod admission;
mod client;
mod clocks;
mod config;
mod connection;
mod error;
#[cfg(test)]
mod fakes;
mod forward;
mod frame_writer;
mod metrics;
mod names;
mod peers;
mod pending_answers;
mod reads;
mod request_writer;
mod row_merge;
mod server;
mod service;
mod socket;
mod tls;
mod wire;

pub use self::{
    admission::{AdmissionError, admit, note_refusal},
    client::PeerClient,
    clocks::ClockWatch,
    config::{NetConfig, NodeIdentity},
    error::PeerError,
    forward::{ClusterSlots, ForwardConfig, ForwardReceiver, ForwardedWrites, SlotCounts, SlotLog},
    metrics::describe_metrics,
    names::{ForgottenNames, NameOwners},
    peers::{NodeAnswer, Peers, TimedReport},
    reads::{ClusterReads, ReadConfig, ReadMemory},
    server::PeerServer,
    service::{HeldQuery, NodeControl, NodeReport, PeerService},
    tls::{PeerTls, TlsFileError, TlsFiles},
    wire::VERSIONS,
};

#[cfg(test)]
mod tests;
