//! The calls of one scanner and their answers.
//!
//! A scanner lives on the server of one region, under a lease. Its calls are numbered: without
//! numbers a call that is repeated because its answer was lost silently passes over rows.

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use crate::{
    cell::CellError,
    multi::region_specifier,
    request::scan::Scan,
    row::{CellBlock, Row, RowResult},
};

/// Most rows of a call that asks for none.
const NO_ROWS: u32 = 0;

/// An open scanner, as its calls need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenScanner {
    /// Chosen by the server; all 64 bits are used.
    pub id: u64,
    /// Number of the next call.
    pub next_call: u64,
}

impl OpenScanner {
    /// Asks for more rows.
    #[must_use]
    pub fn next(&mut self, scan: &Scan, limit: Option<u32>) -> pb::ScanRequest {
        pb::ScanRequest {
            scanner_id: Some(self.id),
            next_call_seq: Some(self.take_number()),
            limit_of_rows: limit,
            ..rows_request(scan.rows_per_call)
        }
    }

    /// Renews the lease.
    #[must_use]
    pub fn renew(&mut self) -> pb::ScanRequest {
        pb::ScanRequest {
            scanner_id: Some(self.id),
            next_call_seq: Some(self.take_number()),
            renew: Some(true),
            ..rows_request(NO_ROWS)
        }
    }

    /// Ends it.
    #[must_use]
    pub fn close(self) -> pb::ScanRequest {
        pb::ScanRequest {
            scanner_id: Some(self.id),
            number_of_rows: Some(NO_ROWS),
            close_scanner: Some(true),
            ..pb::ScanRequest::default()
        }
    }

    const fn take_number(&mut self) -> u64 {
        let number = self.next_call;
        self.next_call += 1;
        number
    }
}

/// Opens a scanner on a region and asks for its first rows.
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

/// Answer to a call that asked for rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanAnswer {
    /// Results, and of each whether more of its row follows.
    pub results: Vec<(Row, bool)>,
    /// Scanner that answered.
    pub scanner_id: Option<u64>,
    /// Milliseconds of the lease; told when the scanner is opened.
    pub lease_ms: Option<u32>,
    /// The limit is reached or a filter wants no more: the whole scan is over.
    pub scan_over: bool,
    /// The region is read to its end.
    pub region_over: bool,
    /// Time or size was up; it says nothing about rows.
    pub heartbeat: bool,
    /// Row the server stands at, if it says.
    pub cursor: Option<Bytes>,
}

impl ScanAnswer {
    /// Puts message and cells together.
    ///
    /// # Errors
    ///
    /// When the cells do not fit their counts.
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
            scan_over: response.more_results == Some(false),
            region_over: response.more_results_in_region == Some(false),
            heartbeat: response.heartbeat_message(),
            cursor: response.cursor.as_ref().and_then(|cursor| cursor.row.clone()),
        })
    }

    /// The scanner that is open after this answer, where this one was before it: at a region's end it is
    /// gone.
    #[must_use]
    pub fn open_after(&self, before: Option<OpenScanner>) -> Option<OpenScanner> {
        if self.scan_over || self.region_over {
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

    /// A recorded request without the defaults that it says.
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
    fn a_lookup_of_meta_is_asked_as_in_the_example() {
        let expected = request("scan-meta-lookup");
        let asked = expected.scan.clone().unwrap();
        let (start, stop) = (asked.start_row.clone().unwrap(), asked.stop_row.clone().unwrap());
        let scan = Scan::range(start.clone(), stop)
            .select(Selection::all().family("info"))
            .inclusive(true, true)
            .reversed()
            .read_type(ReadType::Pread);
        let region = expected.region.clone().unwrap().value;
        let ours = open_scanner(&scan, &region, &start, true, Some(10));
        assert_eq!((ours.region, ours.limit_of_rows), (expected.region, Some(10)));
        let scan = ours.scan.unwrap();
        assert_eq!((scan.start_row, scan.stop_row), (asked.start_row, asked.stop_row));
        assert_eq!(
            (scan.column, scan.reversed, scan.read_type),
            (asked.column, asked.reversed, asked.read_type)
        );
    }

    #[test]
    fn an_answer_has_results_flags_and_a_lease() {
        let (response, block) = message("scan-response-open");
        let answer = ScanAnswer::decode(&response, block).unwrap();
        let shape: Vec<_> =
            answer.results.iter().map(|(row, partial)| (row.len(), *partial)).collect();
        assert_eq!(shape, [(2, false), (1, true)]);
        assert_eq!(answer.lease_ms, Some(60_000));
        let mut scanner = answer.open_after(None).unwrap();
        assert_eq!((Some(scanner.id), scanner.next_call), (answer.scanner_id, 0));
        scanner.next_call = 7;
        assert_eq!(answer.open_after(Some(scanner)), Some(scanner));
        let over = ScanAnswer { region_over: true, ..answer.clone() };
        assert_eq!(over.open_after(Some(scanner)), None);
        assert!(
            answer.scanner_id.is_some()
                && !answer.scan_over
                && !answer.region_over
                && !answer.heartbeat
        );
    }

    #[test]
    fn a_heartbeat_has_no_rows() {
        let (response, block) = message("scan-response-heartbeat");
        let answer = ScanAnswer::decode(&response, block).unwrap();
        assert!(answer.heartbeat && answer.results.is_empty() && answer.cursor.is_some());
    }

    #[test]
    fn cells_that_no_result_counts_are_an_error() {
        let (mut response, block) = message::<pb::ScanResponse>("scan-response-open");
        response.cells_per_result.pop();
        assert!(matches!(ScanAnswer::decode(&response, block.clone()), Err(CellError::Surplus(_))));
        response.cells_per_result = vec![2, 2];
        assert_eq!(ScanAnswer::decode(&response, block), Err(CellError::Count(2)));
    }
}
