//! The protocol without I/O: frames, cells, requests and answers, hbase:meta, the state of a scan.
//!
//! Everything here is a function of bytes and values. The client is built on it; fakes, tools and
//! other runtimes can be too.

pub use crate::{
    cell::Cells,
    frame::{Answer, CONNECTION_CALL, FrameError, FrameReader, Outcome, Request, Response},
    handshake::{AuthMethod, CELL_CODEC, Service, connection_header},
    multi::{ActionOutcome, MultiError, RegionBatch, RegionOutcome, multi_outcomes, multi_request},
    region::{
        cache::{RegionCache, RowRange},
        meta::{Lookup, RegionTarget, read_lookup},
        name::{
            RegionNameParts, compare_meta_rows, encoded_name, end_meta_key, first_meta_key,
            region_name, search_key, search_key_before,
        },
    },
    row::CellBlock,
    scan::{
        calls::{OpenScanner, ScanAnswer, open_scanner},
        position::ScanPosition,
        rows::{RowAssembler, ScanStep},
    },
};
