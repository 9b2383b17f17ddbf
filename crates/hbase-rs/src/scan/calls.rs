//! RPCs of a region scanner: open, next, renew, close.
//!
//! A scanner belongs to one region of a server and has a lease. Its calls are numbered, since a call
//! that is retried after a lost response would otherwise skip rows silently.

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use crate::{
    cell::CellError,
    region::name::region_specifier,
    request::scan::Scan,
    row::{CellBlock, Row, RowResult},
};

/// Number of rows of a request that only renews or closes.
const NO_ROWS: u32 = 0;

/// An open region scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenScanner {
    /// Id assigned by the server; all 64 bits are used.
    pub id: u64,
    /// Sequence number of the next call.
    pub next_call: u64,
}

impl OpenScanner {
    /// Requests the next rows.
    #[must_use]
    pub fn next(&mut self, scan: &Scan, limit: Option<u32>) -> pb::ScanRequest {
        pb::ScanRequest {
            scanner_id: Some(self.id),
            next_call_seq: Some(self.take_sequence_number()),
            limit_of_rows: limit,
            ..rows_request(scan.rows_per_call)
        }
    }

    /// Renews the lease.
    #[must_use]
    pub fn renew(&mut self) -> pb::ScanRequest {
        pb::ScanRequest {
            scanner_id: Some(self.id),
            next_call_seq: Some(self.take_sequence_number()),
            renew: Some(true),
            ..rows_request(NO_ROWS)
        }
    }

    /// Closes the scanner.
    #[must_use]
    pub fn close(self) -> pb::ScanRequest {
        pb::ScanRequest {
            scanner_id: Some(self.id),
            number_of_rows: Some(NO_ROWS),
            close_scanner: Some(true),
            ..pb::ScanRequest::default()
        }
    }

    const fn take_sequence_number(&mut self) -> u64 {
        let number = self.next_call;
        self.next_call += 1;
        number
    }
}

/// Opens a scanner on a region and requests the first rows.
#[must_use]
pub fn open_scanner(
    scan: &Scan,
    region: &Bytes,
    start: &Bytes,
    include_start: bool,
    limit: Option<u32>,
) -> pb::ScanRequest {
    pb::ScanRequest {
        region: Some(region_specifier(region)),
        scan: Some(scan.to_message(start, include_start)),
        limit_of_rows: limit,
        ..rows_request(scan.rows_per_call)
    }
}

fn rows_request(rows: u32) -> pb::ScanRequest {
    pb::ScanRequest {
        number_of_rows: Some(rows),
        client_handles_partials: Some(true),
        client_handles_heartbeats: Some(true),
        ..pb::ScanRequest::default()
    }
}

/// A decoded scan response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanResponse {
    /// Results, each with a flag that is true if more cells of its row follow.
    pub results: Vec<(Row, bool)>,
    /// Id of the scanner.
    pub scanner_id: Option<u64>,
    /// Lease in milliseconds; set in the response to an open.
    pub lease_ms: Option<u32>,
    /// The whole scan is complete: the limit is reached or a filter ended it.
    pub scan_complete: bool,
    /// The region is exhausted.
    pub region_complete: bool,
    /// The server reached its time or size limit; more rows may follow.
    pub heartbeat: bool,
    /// Current row of the server, if requested.
    pub cursor: Option<Bytes>,
}

impl ScanResponse {
    /// Decodes a message and its cell block.
    ///
    /// # Errors
    ///
    /// When the cells do not match their counts.
    pub fn decode(response: &pb::ScanResponse, block: Bytes) -> Result<Self, CellError> {
        let mut block = CellBlock::new(block);
        let flag = |at: usize| response.partial_flag_per_result.get(at).copied();
        let mut results = Vec::with_capacity(response.cells_per_result.len());
        for (at, count) in response.cells_per_result.iter().enumerate() {
            results.push((block.take(*count as usize)?, flag(at).unwrap_or(false)));
        }
        for (at, result) in response.results.iter().enumerate() {
            let row = RowResult::decode(result, &mut block)?.row;
            results.push((row, flag(at).unwrap_or(result.partial())));
        }
        block.finish()?;
        Ok(Self {
            results,
            scanner_id: response.scanner_id,
            lease_ms: response.ttl,
            scan_complete: response.more_results == Some(false),
            region_complete: response.more_results_in_region == Some(false),
            heartbeat: response.heartbeat_message(),
            cursor: response.cursor.as_ref().and_then(|cursor| cursor.row.clone()),
        })
    }

    /// Returns the scanner that is open after this response, given the one before it. The server closes
    /// it at the end of its region.
    #[must_use]
    pub fn open_after(&self, before: Option<OpenScanner>) -> Option<OpenScanner> {
        if self.scan_complete || self.region_complete {
            return None;
        }
        before.or_else(|| self.scanner_id.map(|id| OpenScanner { id, next_call: 0 }))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::{
        recorded,
        request::{scan::ReadType, selection::Selection},
    };

    fn message<M: Message + Default>(vector: &str) -> (M, Bytes) {
        let mut rest = recorded::vector(vector).slice(4..);
        let header = prost::decode_length_delimiter(&mut rest).unwrap();
        let mut rest = rest.slice(header..);
        let length = prost::decode_length_delimiter(&mut rest).unwrap();
        (M::decode(rest.split_to(length)).unwrap(), rest)
    }

    /// Returns a recorded request without its explicit defaults.
    fn request(vector: &str) -> pb::ScanRequest {
        let (mut request, _) = message::<pb::ScanRequest>(vector);
        for flag in
            [&mut request.close_scanner, &mut request.renew, &mut request.track_scan_metrics]
        {
            *flag = flag.filter(|flag| *flag);
        }
        request.limit_of_rows = request.limit_of_rows.filter(|limit| *limit != 0);
        request
    }

    #[test]
    fn calls_are_numbered_from_the_first_after_open() {
        let next = request("scan-next");
        let scan = Scan::all().per_call(next.number_of_rows(), 2 << 20);
        let mut scanner = OpenScanner { id: next.scanner_id(), next_call: 0 };
        assert_eq!(scanner.next(&scan, None), next);
        assert_eq!(scanner.renew().next_call_seq, Some(1));
        assert_eq!(scanner.next(&scan, Some(7)).next_call_seq, Some(2));
        let renew = request("scan-renew");
        let mut scanner = OpenScanner { id: renew.scanner_id(), next_call: 1 };
        assert_eq!(scanner.renew(), renew);
        let mut close = request("scan-close");
        close.client_handles_partials = None;
        close.client_handles_heartbeats = None;
        assert_eq!(OpenScanner { id: close.scanner_id(), next_call: 3 }.close(), close);
    }

    #[test]
    fn meta_lookup_encodes_as_recorded() {
        let expected = request("scan-meta-lookup");
        let recorded = expected.scan.clone().unwrap();
        let (start, stop) =
            (recorded.start_row.clone().unwrap(), recorded.stop_row.clone().unwrap());
        let scan = Scan::range(start.clone(), stop)
            .select(Selection::all().family("info"))
            .inclusive(true, true)
            .reversed()
            .read_type(ReadType::Pread);
        let region = expected.region.clone().unwrap().value;
        let opened = open_scanner(&scan, &region, &start, true, Some(10));
        assert_eq!((opened.region, opened.limit_of_rows), (expected.region, Some(10)));
        let scan = opened.scan.unwrap();
        assert_eq!((scan.start_row, scan.stop_row), (recorded.start_row, recorded.stop_row));
        assert_eq!(
            (scan.column, scan.reversed, scan.read_type),
            (recorded.column, recorded.reversed, recorded.read_type)
        );
    }

    #[test]
    fn response_has_results_flags_and_a_lease() {
        let (response, block) = message("scan-response-open");
        let decoded = ScanResponse::decode(&response, block).unwrap();
        let shape: Vec<_> =
            decoded.results.iter().map(|(row, partial)| (row.len(), *partial)).collect();
        assert_eq!(shape, [(2, false), (1, true)]);
        assert_eq!(decoded.lease_ms, Some(60_000));
        let mut scanner = decoded.open_after(None).unwrap();
        assert_eq!((Some(scanner.id), scanner.next_call), (decoded.scanner_id, 0));
        scanner.next_call = 7;
        assert_eq!(decoded.open_after(Some(scanner)), Some(scanner));
        let over = ScanResponse { region_complete: true, ..decoded.clone() };
        assert_eq!(over.open_after(Some(scanner)), None);
        assert!(
            decoded.scanner_id.is_some()
                && !decoded.scan_complete
                && !decoded.region_complete
                && !decoded.heartbeat
        );
    }

    #[test]
    fn heartbeat_has_no_rows() {
        let (response, block) = message("scan-response-heartbeat");
        let decoded = ScanResponse::decode(&response, block).unwrap();
        assert!(decoded.heartbeat && decoded.results.is_empty() && decoded.cursor.is_some());
    }

    #[test]
    fn counts_that_do_not_match_the_cells_are_an_error() {
        let (mut response, block) = message::<pb::ScanResponse>("scan-response-open");
        response.cells_per_result.pop();
        assert!(matches!(
            ScanResponse::decode(&response, block.clone()),
            Err(CellError::Surplus(_))
        ));
        response.cells_per_result = vec![2, 2];
        assert_eq!(ScanResponse::decode(&response, block), Err(CellError::Count(2)));
    }
}
