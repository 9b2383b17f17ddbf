//! A native client of HBase 2.4 to 3.0: protobuf RPC to region servers and master, without Thrift,
//! REST or a JVM. It does not interpret the cells.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use hbase_rs::{Client, ClientConfig, Get, Put, Scan, discovery::ZooKeeperDiscovery};
//!
//! let discovery = ZooKeeperDiscovery::new("zk1,zk2,zk3", "/hbase");
//! let table = Client::new(ClientConfig::new("me"), discovery).table("t".parse()?);
//! table.mutate(Put::try_new("row")?.cell(b"f", b"q", 1_700_000_000_000, b"value")?).await?;
//! let row = table.get(&Get::try_new("row")?).await?;
//! assert_eq!(row.value(b"f", b"q"), Some(&b"value"[..]));
//! let mut rows = table.scan(Scan::prefix("r"));
//! while let Some(row) = rows.next().await {
//!     println!("{:?}", row?.row);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [The guide](guide) has a page for each task, from the first get to a secured cluster.
//!
//! | feature | content |
//! |---|---|
//! | `zookeeper` (default) | [`ZooKeeperDiscovery`](discovery::ZooKeeperDiscovery) |
//! | `rustls` | TLS ([`security::TlsConfig`]) |
//! | `kerberos` | Kerberos ([`security::KerberosConfig`]) |
//! | `snappy`, `lz4`, `gzip` | [`Compressor`]s |
//!
//! # Structure
//!
//! ```text
//! Table ──► Locator ──► RegionCache          Discovery (ZooKeeper, registry, fixed)
//!   │          └────────── hbase:meta ──────────────┘
//!   ├─ get, mutate ─┐
//!   ├─ batch ───────┼─► ConnectionPool ─► Connection: permits ─► writer ─► Transport ─► reader ─► call map
//!   ├─ scan ────────┤
//!   └─ buffered ────┘
//! ```
//!
//! Protocol and I/O are separate. The hidden module `protocol` has all functions of bytes: frames, cells, messages and
//! their cells, names and rows of hbase:meta, the region cache, scan state. On top of it:
//!
//! * A **connection** multiplexes the calls to one service of one server. Queued requests are sent in one write;
//!   responses arrive in any order. Permits bound the calls and their bytes, so callers wait and memory does not
//!   grow. Scans and hbase:meta have their own connections, so that long responses do not delay short ones. Under
//!   load another connection is opened ([`ClientConfig::connections_per_server`]).
//! * The **locator** uses a cached location until a call to it fails, and a failure invalidates only
//!   the location that the call used (`RegionCache`). Callers whose rows are in one
//!   region share a lookup (single-flight); the lookups of a table are bounded in number.
//! * A **batch** is grouped by server and region. Actions that are retried are grouped again, by
//!   row, since regions may have been split or merged.
//! * A **buffer** ([`BufferedMutator`]) combines the mutations of many callers, which are encoded as
//!   they are added, and reports the result to each caller. An unavailable region delays only its
//!   own mutations.
//! * A **scan** resumes after a row, never at a region or a scanner (`RowAssembler`):
//!   after any failure a new scanner continues without losing or repeating a row. It prefetches one
//!   response, and renews its lease while the caller is slow.
//! * **Errors** are classified in one place. [`CallError::recovery`](errors::CallError::recovery) maps class, flag and
//!   text of an exception to a [`Recovery`](errors::Recovery), which all retry loops use. An [`OperationError`] has the
//!   cause of the last attempt, and tells whether HBase may have executed the operation.
//! * **Retries.** Increments and appends have nonces and are retried like reads and puts. Operations
//!   that must not be executed twice (conditions, deletes of "the newest version") are not retried
//!   if a failed attempt may have executed them.
//! * **Cells** ([`Cell`], [`Row`]) are views into the response, without an allocation for each cell.
//!   Use [`Row::detach`] for rows that are kept long.
//! * **Requests** are validated when they are built: servers report some invalid ones as transient
//!   failures.
//! * Encryption and authentication are a [`Transport`](transport::Transport), between socket and frames.
//! * **Discovery** asks ZooKeeper ([`ZooKeeperDiscovery`](discovery::ZooKeeperDiscovery)), or servers of HBase on
//!   clusters that hide ZooKeeper ([`RegistryDiscovery`](discovery::RegistryDiscovery)).
//! * **Metrics** are plain data ([`Client::stats`]).
//! * **Spans** of `tracing`, at level debug: one for each operation (name, table, deadline), and one below it for each
//!   attempt (method, server, region, number, outcome). A buffered mutation has no span; the call that sends it has
//!   one.
//!
//! # Waits and their limits
//!
//! | wait | limit |
//! |---|---|
//! | an operation, with its attempts and backoffs | [`ClientConfig::operation_timeout`], [`Table::with_timeout`] |
//! | a backoff | itself; it does not exceed the operation's deadline |
//! | a master operation, with the procedure it starts | [`ClientConfig::procedure_timeout`] |
//! | one call to the master | [`ClientConfig::admin_timeout`] |
//! | a lookup, own or shared | the operation; the lookup itself [`ClientConfig::call_timeout`] |
//! | a shared lookup that may find another region | 20 ms, then an own lookup |
//! | a permit for a lookup | the operation |
//! | discovery | [`ClientConfig::call_timeout`], for all callers |
//! | a lookup in a ZooKeeper with TLS or SASL | 8 s for all its servers |
//! | a lookup at the servers of a registry | four fifths of [`ClientConfig::call_timeout`] |
//! | a connect, with its transport | [`ClientConfig::connect_timeout`], and the call's deadline for each waiting call |
//! | a permit of a connection, the writer's queue | the call's deadline |
//! | a response | the call's timeout ([`ClientConfig::call_timeout`], [`ClientConfig::scan_timeout`]) and a tenth |
//! | a write to a peer that does not read | its connection, which timed-out calls close |
//! | a read from a peer that does not write | the same, or [`ClientConfig::idle_timeout`] without calls |
//! | reading responses after a failed write | one second |
//! | admission to a buffer | [`BufferConfig::timeout`], or the operation's timeout |
//! | the result of a buffered mutation | the same, and the timeout of a call in flight |
//! | flushing or closing a buffer | the results of all earlier mutations |
//! | the next lookup of an unavailable region | a backoff; its mutations fail at their own deadlines |
//! | the next row of a scan | the operation's timeout without any progress |
//! | the caller of a scan | unlimited: the task keeps one response until it is taken or dropped, and renews the lease for a while |
//!
//! # Server crashes
//!
//! A crashed server refuses connections. The client looks its regions up immediately, and finds them when the master
//! has opened them on other servers. A server that hangs or is partitioned costs the calls in flight
//! [`ClientConfig::call_timeout`]. A connection that receives nothing in that time is closed, and the next attempt
//! looks the region up again. Both last until the server's ZooKeeper session has expired and its logs are split;
//! [`ClientConfig::operation_timeout`] must exceed that time.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests and their helpers fail by panicking"
    )
)]

pub mod admin;
mod attempts;
pub mod buffer;
mod cell;
mod client;
mod compression;
mod condition_support;
pub mod config;
mod connection;
pub mod discovery;
mod exception;
mod frame;
mod handshake;
mod locator;
mod metrics;
mod multi;
mod operation_error;
mod pool;
#[doc(hidden)]
pub mod protocol;
mod random;
#[cfg(test)]
mod recorded;
pub mod region;
mod request;
mod retry;
mod row;
mod scan;
mod scanner;
pub mod security;
mod server_name;
pub mod stats;
mod table;
mod table_name;
mod table_state;
mod trace;
pub mod transport;

pub mod condition {
    //! Conditions of check-and-mutate operations.

    pub use crate::request::condition::Condition;
}

pub mod errors {
    //! Errors, and the classes and recoveries of exceptions.
    //!
    //! Every operation fails with an [`OperationError`]; its cause is a [`Failure`].

    pub use crate::{
        buffer::BatchError,
        cell::CellError,
        compression::CompressionError,
        connection::{CallError, DisconnectReason},
        discovery::{AddressError, DiscoveryError},
        exception::{ExceptionClass, MovedTo, Recovery, RemoteException},
        frame::{FrameError, MessageError},
        operation_error::{Failure, OperationError},
        request::RequestError,
        scan::rows::RowTooLong,
        security::{SecurityError, UnknownProtection},
        table_name::TableNameError,
        transport::{TransportError, TransportErrorKind},
    };
}

pub mod filter {
    //! Server-side filters and comparators.

    pub use crate::request::filter::{
        ColumnTest, Comparator, CompareOp, Filter, FuzzyKey, Interval, REGEX_DOTALL, quote_regex,
    };
}

pub use self::{
    buffer::{BufferConfig, BufferedMutator},
    cell::{Cell, CellKind, SERVER_TIME},
    client::Client,
    compression::Compressor,
    config::ClientConfig,
    multi::Action,
    operation_error::OperationError,
    request::{
        get::Get,
        mutation::{Append, Delete, Increment, Mutation, Put},
        scan::{ReadType, Scan},
        selection::{Selection, TimeRange},
    },
    row::{Row, RowResult},
    scan::rows::ScanRow,
    scanner::Scanner,
    server_name::ServerName,
    table::Table,
    table_name::TableName,
};

#[cfg(any(doc, doctest))]
pub mod guide {
    //! The guide: a page for each task.

    pub mod quick_start {
        #![doc = include_str!("../guide/quick-start.md")]
    }
    pub mod buffered_writes {
        #![doc = include_str!("../guide/buffered-writes.md")]
    }
    pub mod scans {
        #![doc = include_str!("../guide/scans.md")]
    }
    pub mod failures {
        #![doc = include_str!("../guide/failures.md")]
    }
    pub mod secured_clusters {
        #![doc = include_str!("../guide/secured-clusters.md")]
    }
    pub mod from_java {
        #![doc = include_str!("../guide/from-java.md")]
    }
    pub mod not_included {
        #![doc = include_str!("../guide/not-included.md")]
    }
}

/// The code of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
