//! HBase, releases 2.4 to 3.0, spoken natively: protobuf RPC straight to region servers and master,
//! no Thrift, no REST, no JVM.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use hbase_rs::{Client, ClientConfig, Get, Put, Scan, ZooKeeperDiscovery};
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
//! # Shape
//!
//! ```text
//! Table ──► Locator ──► RegionCache          Discovery (ZooKeeper, fixed)
//!   │          └────────── hbase:meta ──────────────┘
//!   ├─ get, mutate ─┐
//!   ├─ batch ───────┼─► ConnectionPool ─► Connection: permits ─► writer ─► Transport ─► reader ─► call map
//!   ├─ scan ────────┤
//!   └─ buffered ────┘
//! ```
//!
//! Protocol and I/O are apart. [`protocol`] holds everything that is a function of bytes: frames,
//! cells, messages matched with their cells, names and rows of hbase:meta, the cache of regions, the
//! state of a scan. Around it:
//!
//! * A **connection** serves one service of one server and carries many calls at once. Requests
//!   that wait leave in one write; answers come in any order. Calls and their bytes are bounded by
//!   permits: callers wait for room, memory does not grow. Scans and hbase:meta have connections of
//!   their own, so that long answers do not hold up short ones; where one carries much another is
//!   opened ([`ClientConfig::connections_per_server`]).
//! * The **locator** believes a location until a call fails on it, and a failure takes away only
//!   the very location that failed ([`protocol::RegionCache`]). Callers whose rows will be found
//!   together make one lookup; lookups of a table are few at a time.
//! * A **batch** is grouped by server and region; what is left of it is grouped anew, by row, since
//!   regions split and merge in between.
//! * A **buffer** ([`BufferedMutator`]) gathers the mutations of many callers, encoded as they are
//!   handed over, and tells each what became of them. A region that is away is parked with what is
//!   for it, and the others go on.
//! * A **scan** goes on from a row, never from a region or a scanner ([`protocol::RowAssembler`]):
//!   after any fault a fresh scanner follows without a row lost or repeated. It reads one answer
//!   ahead, and renews its lease while the caller is slow.
//! * **Errors** are sorted in one place. [`RemoteException::recovery`] and [`CallError::recovery`]
//!   turn class, flag and text into one [`Recovery`]; loops ask for that and nothing else. An
//!   [`OperationError`] keeps the cause of its last attempt and says whether the operation may have
//!   been done all the same.
//! * **Repetition.** Increments and appends carry nonces and are repeated like reads and puts. What
//!   must not happen twice (conditions, deletes of "the newest version") is not repeated in doubt.
//! * **Cells** ([`Cell`], [`Row`]) are views of the answer they came in; nothing is allocated a
//!   cell. [`Row::detach`] what is kept for long.
//! * **Requests** are checked while they are made: servers answer some bad ones as if a repetition
//!   would help.
//! * Simple authentication over plain text is all there is so far. TLS and SASL are a [`Transport`]
//!   each, between socket and frames; nothing else knows of them.
//! * **Counters** are plain data ([`Client::stats`]), for whatever publishes them.
//!
//! # Waits, and what ends them
//!
//! | wait | ends at the latest with |
//! |---|---|
//! | an operation, with its attempts and pauses | [`ClientConfig::operation_timeout`], [`Table::with_timeout`] |
//! | a pause before an attempt | itself; there is none that would pass the operation's end |
//! | an order to the master, with the procedure it starts | [`ClientConfig::procedure_timeout`] |
//! | one call to the master | [`ClientConfig::admin_timeout`] |
//! | a lookup of one's own, or shared | the operation; the lookup itself with [`ClientConfig::call_timeout`] |
//! | a lookup that may be of another region | 20 ms, then one of one's own |
//! | one lookup's turn | the operation |
//! | discovery | [`ClientConfig::call_timeout`], for the one who asks and those who wait for the answer |
//! | a connection coming up, with its transport | [`ClientConfig::connect_timeout`], for those who wait for it their own call's time |
//! | room on a connection, the writer's queue | the call's time |
//! | an answer | the call's time ([`ClientConfig::call_timeout`], [`ClientConfig::scan_timeout`]) and a tenth |
//! | a write to a peer that does not read | its connection: calls that run out of time close it |
//! | a read from a peer that does not write | the same, or [`ClientConfig::idle_timeout`] without calls |
//! | last words after a failed write | one second |
//! | room in a buffer, also for regions that are parked | [`BufferConfig::timeout`], or the operation's time |
//! | a buffered mutation's outcome | the same, and the time of a call that began before |
//! | a flush, a buffer's closing | the outcomes of what came before |
//! | a parked region's next attempt | a pause; what is parked fails when its own time is up |
//! | a scan's next row | the operation's time without any progress |
//! | a scan's caller | nothing: the task holds one answer until it is taken or dropped, the lease for a while |
//!
//! # When servers die
//!
//! A server that is killed refuses connections: its regions are looked for at once, and found when
//! the master has opened them elsewhere. One that hangs, or whose link is cut without a word, costs the calls
//! that are under way [`ClientConfig::call_timeout`]; nothing read in that time means that the connection is
//! dead, and the next attempt asks hbase:meta again. Both last until the server's session at
//! ZooKeeper has ended and its logs are split. [`ClientConfig::operation_timeout`] says how that
//! decides the time of an operation.
//!
//! The crate knows nothing of what its cells mean.

#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "tests and their helpers fail by panicking"
    )
)]

mod admin;
mod attempts;
mod buffer;
mod cell;
mod client;
mod compression;
mod config;
mod connection;
mod discovery;
mod error;
mod exception;
mod frame;
mod handshake;
mod locator;
mod metrics;
mod multi;
mod pool;
pub mod protocol;
mod random;
#[cfg(test)]
mod recorded;
mod region;
mod request;
mod retry;
mod row;
mod scan;
mod scanner;
mod server_name;
mod stats;
mod table;
mod table_name;
mod transport;
mod wire;

pub use self::{
    admin::{
        Admin, ClusterStatus, FamilyDescriptor, NamespaceDescriptor, TableDescriptor, TableState,
    },
    buffer::{BatchError, BufferConfig, BufferedMutator, MutationBatch, Receipt},
    cell::{Cell, CellError, CellKind, MAX_FAMILY_LENGTH, MAX_ROW_LENGTH, SERVER_TIME},
    client::Client,
    compression::{CompressionError, Compressor},
    config::ClientConfig,
    connection::{CallError, DisconnectReason},
    discovery::{Discovery, DiscoveryError, DiscoveryFuture, FixedDiscovery, ZooKeeperDiscovery},
    error::{Failure, OperationError},
    exception::{ExceptionClass, MovedTo, Recovery, RemoteException},
    multi::Action,
    region::info::{Region, RegionLocation},
    region::meta::MetaRow,
    request::{
        RequestError,
        condition::Condition,
        filter::{
            ColumnTest, Comparator, CompareOp, Filter, FuzzyKey, Interval, REGEX_DOTALL,
            quote_regex,
        },
        get::Get,
        mutation::{Append, Delete, Durability, Increment, Mutation, Put},
        scan::{ReadType, Scan},
        selection::{Selection, TimeRange},
    },
    retry::Backoff,
    row::{Row, RowResult},
    scan::rows::{RowTooLong, ScanRow},
    scanner::Scanner,
    server_name::ServerName,
    stats::{BufferStats, ClientStats, Latency, MethodStats, RetryReason, ServerStats, Traffic},
    table::Table,
    table_name::{TableName, TableNameError},
    transport::{
        ByteStream, Channel, Destination, Established, PlainTransport, Transport, TransportFuture,
    },
};
