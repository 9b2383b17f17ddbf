//! HBase's protocol without I/O: frames, cells, requests and responses, hbase:meta, scan state.
//!
//! Everything here is a function of bytes and values. The client and the fake servers of the tests
//! are built on it.

pub use crate::{
    cell::Cells,
    discovery::znode::{read_master_znode, read_meta_server_znode},
    frame::{CONNECTION_CALL, CallOutcome, FrameReader, Request, Response, ResponseBody},
    handshake::{CELL_CODEC, connection_header},
    multi::{ActionOutcome, MultiError, RegionOutcome, multi_outcomes},
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
        calls::{OpenScanner, ScanResponse, open_scanner},
        position::ScanPosition,
        rows::{RowAssembler, ScanStep},
    },
};
