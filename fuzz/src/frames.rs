//! Frames, responses and cells of a region server.

use bytes::{Bytes, BytesMut};
use hbase_rs::{
    Cell, Compressor, Row, Scan, ServerName,
    protocol::{
        CallOutcome, CellBlock, Cells, FrameReader, RegionCache, RegionTarget, Response,
        ResponseBody, RowAssembler, ScanResponse, multi_outcomes, read_lookup,
    },
    region::{MetaRow, Region},
};

/// Maximum length of a frame, a decompressed cell block and a row.
const LIMIT: usize = 1 << 20;

/// A stream of responses: the size of reads, then the bytes.
pub(crate) fn frames(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else { return };
    let reader = FrameReader::new(LIMIT);
    let mut buffer = BytesMut::new();
    let (mut taken, mut over) = (0, false);
    for read in stream.chunks(usize::from(*cut) + 1) {
        buffer.extend_from_slice(read);
        loop {
            match reader.next(&mut buffer) {
                Ok(Some(frame)) => {
                    assert_eq!(
                        frame,
                        stream[taken + 4..taken + 4 + frame.len()],
                        "frames in order"
                    );
                    taken += 4 + frame.len();
                    response(frame);
                }
                Ok(None) => break,
                Err(_) => over = true,
            }
            if over {
                return;
            }
        }
        assert!(
            buffer.capacity() <= 2 * LIMIT + (64 << 10),
            "the buffer is bounded by the longest frame"
        );
    }
    assert_eq!(taken + buffer.len(), stream.len(), "no byte is lost");
}

fn response(frame: Bytes) {
    let Ok(Response { outcome, .. }) = Response::decode(frame) else { return };
    match outcome {
        CallOutcome::Exception(exception) => {
            let _ = (exception.recovery(), exception.class(), exception.to_string());
        }
        CallOutcome::Response(body) => {
            for compressor in [None, Some(Compressor::Snappy), Some(Compressor::Gzip)] {
                decode_body(&body, compressor);
            }
        }
        CallOutcome::Undecodable(_) => {}
    }
}

/// Decodes the response as a response to a scan, a lookup and a batch.
fn decode_body(body: &ResponseBody, compressor: Option<Compressor>) {
    let Ok(block) = body.block(compressor, LIMIT) else { return };
    assert!(block.len() <= LIMIT, "blocks keep to the limit");
    if let Ok(message) = body.message()
        && let Ok(scanned) = ScanResponse::decode(&message, block.clone())
    {
        scan(&scanned);
    }
    if let Ok(message) = body.message() {
        for shape in [&[(1, false)][..], &[(2, true)], &[(1, false), (3, false)]] {
            if let Ok(outcomes) = multi_outcomes(shape, &message, block.clone()) {
                assert_eq!(outcomes.len(), shape.len(), "an outcome a region");
            }
        }
    }
}

fn scan(response: &ScanResponse) {
    let table = "t".parse().expect("a name");
    let rows: Vec<Row> = response.results.iter().map(|(row, _)| row.clone()).collect();
    let _ = rows.iter().filter_map(MetaRow::decode).count();
    let (_, others) = read_lookup(&table, &RegionTarget::Holding(Bytes::from_static(b"m")), &rows);
    let mut cache = RegionCache::new(8);
    for location in others {
        cache.insert(location);
        assert!(cache.len() <= 8, "the cache keeps to its bound");
    }
    let range = cache.lookup_range(&table, b"m");
    assert!(cache.holding(&table, b"m").is_some() || range.contains(b"m"), "a row is in its span");
    cache.server_gone(&ServerName::new("rs", 1, 1));
    let cells: usize = rows.iter().map(Row::len).sum();
    let region = Region::new(table, Bytes::new(), Bytes::new(), 1);
    for scan in [Scan::all(), Scan::all().limit(1), Scan::all().reversed()] {
        let mut assembler = RowAssembler::new(&scan, LIMIT);
        let mut whole = Vec::new();
        for end in [false, true] {
            let response = ScanResponse { region_complete: end, ..response.clone() };
            let _ = assembler.add_response(response, &region, &mut whole);
        }
        let seen: usize = whole.iter().map(|row| row.row.len()).sum();
        assert!(seen <= 2 * cells, "no cell comes from nowhere");
    }
}

/// A block of cells, whose decoded cells must encode to the same bytes.
pub(crate) fn cells(input: &[u8]) {
    let mut again = BytesMut::new();
    let mut count = 0;
    let mut cells = Cells::new(input);
    while let Some(Ok(cell)) = cells.next() {
        let before = again.len();
        cell.encode(&mut again).expect("what was read can be written");
        assert_eq!(again.len() - before, cell.encoded_len(), "its length is known");
        assert_eq!(Cell::decode(&mut &again[before..]), Ok(cell), "it is read again");
        count += 1;
    }
    assert_eq!(again, input[..again.len()], "cells have one form");
    let mut block = CellBlock::new(Bytes::copy_from_slice(input));
    assert!(block.take(count + 1).is_err(), "there are no more");
    if let Ok(row) = block.take(count) {
        assert_eq!((row.len(), &row.encoded()[..]), (count, &again[..]), "a row is its cells");
        assert!(row.cells().all(|cell| cell.row == row.key()), "of one key");
    }
    for compressor in [Compressor::Snappy, Compressor::Lz4, Compressor::Gzip, Compressor::Zlib] {
        if let Ok(restored) = compressor.decompress(input, LIMIT) {
            assert!(restored.len() <= LIMIT, "restored blocks keep to the limit");
        }
    }
}
