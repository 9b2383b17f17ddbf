//! History of a writer, which determines the values that may be read.
//!
//! A writer has pages: an hour each, with some points of some series. It writes or deletes a page in each of its
//! successive rounds, and repeats a round until it is acknowledged. So a page has the result of its last acknowledged
//! round, or of a later round.

use parking_lot::Mutex;
use std::{collections::HashMap, ops::RangeInclusive, time::Instant};

use serde_json::{Value, json};

use crate::cluster_nodes::{seed, value};

const METRIC: &str = "cluster.kills";
/// Series of a page.
const SERIES: u64 = 4;
/// Points of each series.
const INSTANTS: u64 = 10;
/// Points that a round writes.
pub(super) const POINTS: u64 = SERIES * INSTANTS;
/// Start of an hour.
pub(super) const FIRST_SECOND: u64 = 444_444 * 3_600;
/// As in OpenTSDB, a delete covers whole hours, including the hour after its range.
const PAGE_SECONDS: u64 = 4 * 3_600;

/// A point's value; `None` if it was never written, or was deleted.
type Content = Option<u64>;

/// Write or delete of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) page: usize,
    pub(super) is_delete: bool,
}

/// A request over HTTP.
#[derive(Debug)]
pub(super) struct WriteRequest {
    pub(super) method: &'static str,
    pub(super) uri: String,
    pub(super) body: Option<String>,
}

/// Observation instead of an acknowledged point.
#[derive(Debug)]
pub(super) struct WrongPoint {
    /// True if the point has another value; false if the point is missing.
    pub(super) has_value: bool,
    /// Second of the point; `None` if the fault concerns several points.
    pub(super) second: Option<u64>,
    pub(super) text: String,
}

/// The rounds of a writer.
#[derive(Debug)]
pub(super) struct History {
    writer: u64,
    rounds: Mutex<Rounds>,
}

#[derive(Debug, Default)]
struct Rounds {
    /// The first round has the number 1.
    begun: Vec<RoundRecord>,
    /// Number of acknowledged rounds.
    acknowledged: usize,
    /// Numbers of the rounds of each page.
    of_page: Vec<Vec<usize>>,
}

#[derive(Debug)]
struct RoundRecord {
    round: Round,
    /// Number of attempts without an acknowledgement.
    in_vain: u32,
    sent: Instant,
    acknowledged: Option<Instant>,
}

impl History {
    pub(super) fn new(writer: u64) -> Self {
        Self { writer, rounds: Mutex::default() }
    }

    /// Begins a round, whose result may be read from now on.
    pub(super) fn begin(&self, round: Round) -> WriteRequest {
        let mut rounds = self.rounds.lock();
        let record = RoundRecord { round, in_vain: 0, sent: Instant::now(), acknowledged: None };
        rounds.begun.push(record);
        let number = rounds.begun.len();
        let pages = rounds.of_page.len().max(round.page + 1);
        rounds.of_page.resize(pages, Vec::new());
        rounds.of_page[round.page].push(number);
        drop(rounds);
        self.request(number as u64, round)
    }

    /// Records an attempt without an acknowledgement.
    pub(super) fn record_failure(&self) {
        if let Some(record) = self.rounds.lock().begun.last_mut() {
            record.in_vain += 1;
        }
    }

    /// Acknowledges the current round.
    pub(super) fn acknowledge(&self) {
        let mut rounds = self.rounds.lock();
        rounds.acknowledged = rounds.begun.len();
        if let Some(record) = rounds.begun.last_mut() {
            record.acknowledged = Some(Instant::now());
        }
    }

    /// Number of acknowledged rounds.
    pub(super) fn acknowledged(&self) -> usize {
        self.rounds.lock().acknowledged
    }

    /// Number of begun pages.
    pub(super) fn pages(&self) -> usize {
        self.rounds.lock().of_page.len()
    }

    /// Number of rounds of a page.
    pub(super) fn rounds_of(&self, page: usize) -> usize {
        self.rounds.lock().of_page.get(page).map_or(0, Vec::len)
    }

    fn request(&self, number: u64, round: Round) -> WriteRequest {
        if round.is_delete {
            let uri = self.uri(&(round.page..=round.page));
            return WriteRequest { method: "DELETE", uri, body: None };
        }
        let page = format!("w{}-{}", self.writer, round.page);
        let point = |series: u64, instant: u64| {
            json!({
                "metric": METRIC,
                "timestamp": second(round.page, instant),
                "value": value(seed(self.writer, series), number, instant),
                "tags": {"writer": format!("w{}", self.writer), "part": series.to_string(), "page": page},
            })
        };
        let points = (0..SERIES).flat_map(|series| (0..INSTANTS).map(move |at| (series, at)));
        let points: Vec<Value> = points.map(|(series, instant)| point(series, instant)).collect();
        let body = Some(Value::Array(points).to_string());
        WriteRequest { method: "POST", uri: "/api/put".to_owned(), body }
    }

    /// A query of these pages. It avoids names of pages, which may still be unknown.
    pub(super) fn uri(&self, pages: &RangeInclusive<usize>) -> String {
        let (start, end) = (second(*pages.start(), 0), second(*pages.end(), INSTANTS));
        format!("/api/query?start={start}&end={end}&m=none:{METRIC}{{writer=w{}}}", self.writer)
    }

    /// Checks the answer to a query of these pages, which was sent when this many rounds were acknowledged. Returns the
    /// number of points, and the wrong points.
    pub(super) fn check(
        &self,
        pages: &RangeInclusive<usize>,
        acknowledged: usize,
        series: &[Value],
    ) -> (u64, Vec<WrongPoint>) {
        let found = found(series);
        let rounds = self.rounds.lock();
        let mut wrong = Vec::new();
        for page in pages.clone() {
            let of_page = rounds.of_page.get(page).map_or(&[][..], Vec::as_slice);
            let known = of_page.partition_point(|number| *number <= acknowledged);
            let (last, later) = of_page.split_at(known);
            let last = last.last().copied();
            for series in 0..SERIES {
                for instant in 0..INSTANTS {
                    let content = |number: &usize| self.content(&rounds, *number, series, instant);
                    let content_found = found.get(&(series, second(page, instant))).copied();
                    let expected = last.as_ref().and_then(content);
                    if content_found == expected
                        || later.iter().any(|n| content(n) == content_found)
                    {
                        continue;
                    }
                    let read_round = of_page.iter().find(|n| content(n) == content_found);
                    let point = format!(
                        "{METRIC}{{writer=w{},part={series},page={page}}} at {}",
                        self.writer,
                        second(page, instant)
                    );
                    let read = rounds.described(content_found, read_round.copied());
                    let expected = rounds.described(expected, last);
                    let later: Vec<String> = later
                        .iter()
                        .map(|number| rounds.described(content(number), Some(*number)))
                        .collect();
                    let text =
                        format!("{point}: read {read}; acknowledged {expected}; later {later:?}");
                    let (has_value, at) = (content_found.is_some(), second(page, instant));
                    wrong.push(WrongPoint { has_value, second: Some(at), text });
                }
            }
        }
        (found.len() as u64, wrong)
    }

    /// Content after a round.
    fn content(&self, rounds: &Rounds, number: usize, series: u64, instant: u64) -> Content {
        let record = rounds.begun.get(number - 1)?;
        let content = || value(seed(self.writer, series), number as u64, instant);
        (!record.round.is_delete).then(content)
    }
}

impl Rounds {
    /// A content with its round, for the report.
    fn described(&self, content: Content, number: Option<usize>) -> String {
        let value = content.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
        let Some((number, record)) =
            number.and_then(|number| Some((number, self.begun.get(number - 1)?)))
        else {
            return format!("{value} of no round");
        };
        let kind = if record.round.is_delete { "delete" } else { "put" };
        let acknowledged = record.acknowledged.map_or_else(
            || "not acknowledged".to_owned(),
            |at| format!("acknowledged {:.2} s ago", at.elapsed().as_secs_f64()),
        );
        format!(
            "{value} of round {number} ({kind}, begun {:.2} s ago, {acknowledged}, {} times in vain)",
            record.sent.elapsed().as_secs_f64(),
            record.in_vain
        )
    }
}

const fn second(page: usize, instant: u64) -> u64 {
    FIRST_SECOND + page as u64 * PAGE_SECONDS + instant
}

/// Values by series and second.
fn found(series: &[Value]) -> HashMap<(u64, u64), u64> {
    let mut found = HashMap::new();
    for one in series {
        let part = one["tags"]["part"].as_str().and_then(|part| part.parse().ok());
        let points = one["dps"].as_object().into_iter().flatten();
        for (at, value) in points {
            let (Some(part), Ok(at)) = (part, at.parse()) else { continue };
            // An unknown value must not count as absent.
            found.insert((part, at), value.as_u64().unwrap_or(u64::MAX));
        }
    }
    found
}
