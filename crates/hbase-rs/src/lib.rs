//! HBase, releases 2.4 to 3.0, spoken natively: protobuf RPC straight to region servers and master,
//! no Thrift, no REST, no JVM.
//!
//! # Shape
//!
//! Protocol and I/O are apart. [`protocol`] holds everything that is a function of bytes: frames,
//! cells, messages matched with their cells, names and rows of hbase:meta, the cache of regions, the
//! state of a scan. The request types of this level ([`Get`], [`Put`], [`Scan`] and so on) check what
//! they are given, because servers answer some bad requests as if a repetition would help.
//!
//! * **Cells** ([`Cell`], [`Row`]) are views of the answer they came in; nothing is allocated a cell.
//!   [`Row::detach`] what is kept for long.
//! * **Errors** are sorted in one place. [`RemoteException::recovery`] turns the Java class, its flag
//!   and its text into one [`Recovery`]; loops ask for that and nothing else.
//! * **Locations** are believed until a call fails on them, and a failure takes away only the very
//!   location that failed ([`protocol::RegionCache`]).
//! * **Scans** go on from a row, never from a region or a scanner ([`protocol::RowAssembler`]), so
//!   that any fault can be followed by a fresh scanner without a row lost or repeated.
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

mod cell;
mod compression;
mod exception;
mod frame;
mod handshake;
mod multi;
pub mod protocol;
#[cfg(test)]
mod recorded;
mod region;
mod request;
mod retry;
mod row;
mod scan;
mod server_name;
mod table_name;
mod wire;

pub use self::{
    cell::{Cell, CellError, CellKind, MAX_FAMILY_LENGTH, MAX_ROW_LENGTH, SERVER_TIME},
    compression::{CompressionError, Compressor},
    exception::{ExceptionClass, MovedTo, Recovery, RemoteException},
    region::info::{Region, RegionLocation},
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
    server_name::ServerName,
    table_name::{TableName, TableNameError},
};
