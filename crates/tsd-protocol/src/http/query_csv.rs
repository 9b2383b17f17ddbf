//! Writes the points of a query as CSV (RFC 4180), for spreadsheets and data frames: a row for each point.
//!
//! The columns are `time`, in UTC, `timestamp_ms`, `metric`, one for each tag key of the result, and `value`, which is
//! empty for NaN and infinities.

use std::io::Write;

use jiff::Timestamp;
use tsd_model::Value;

use super::SeriesResult;

/// Characters at which a spreadsheet takes a field for a formula or a command.
const FORMULA_STARTS: [char; 9] = ['=', '+', '-', '@', '|', '%', '\t', '\r', '\n'];

/// The columns of a result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvColumns {
    /// In order of their names.
    tag_keys: Vec<String>,
}

impl CsvColumns {
    /// The columns of series with these tags.
    pub fn new<'a>(tags: impl IntoIterator<Item = &'a [(String, String)]>) -> Self {
        let keys = tags.into_iter().flatten().map(|(tagk, _)| tagk);
        let mut tag_keys: Vec<_> = keys.cloned().collect();
        tag_keys.sort_unstable();
        tag_keys.dedup();
        Self { tag_keys }
    }

    /// Appends the first line.
    pub fn write_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"time,timestamp_ms,metric,");
        for tagk in &self.tag_keys {
            write_text(out, tagk);
            out.push(b',');
        }
        out.extend_from_slice(b"value\r\n");
    }

    /// Returns the fields that all rows of a series have, each with a comma after it.
    #[must_use]
    pub fn names(&self, metric: &str, tags: &[(String, String)]) -> Vec<u8> {
        let mut names = Vec::new();
        write_text(&mut names, metric);
        names.push(b',');
        for wanted in &self.tag_keys {
            if let Some((_, tagv)) = tags.iter().find(|(tagk, _)| tagk == wanted) {
                write_text(&mut names, tagv);
            }
            names.push(b',');
        }
        names
    }
}

/// Appends the row of a point. `names`: from [`CsvColumns::names`].
pub fn write_csv_row(out: &mut Vec<u8>, time_ms: i64, names: &[u8], value: Value) {
    // A vector takes every write.
    let _ = match Timestamp::from_millisecond(time_ms) {
        Ok(time) => write!(out, "{time:.3},{time_ms},"),
        Err(_) => write!(out, ",{time_ms},"),
    };
    out.extend_from_slice(names);
    let _ = match value {
        Value::Integer(integer) => write!(out, "{integer}"),
        Value::Float(float) if float.is_finite() => write!(out, "{float}"),
        Value::Float(_) => Ok(()),
    };
    out.extend_from_slice(b"\r\n");
}

/// Appends a text as a field. A text that a spreadsheet would take for a formula gets an apostrophe before it, since
/// names and tags come from anybody who may put points.
fn write_text(out: &mut Vec<u8>, text: &str) {
    let is_formula = |text: &str| text.starts_with(FORMULA_STARTS);
    let apostrophe = if is_formula(text) || is_formula(text.trim_start()) { "'" } else { "" };
    let is_quoted = text.contains(['"', ',', ';', '\r', '\n']) || text != text.trim();
    if is_quoted {
        let text = text.replace('"', "\"\"");
        out.extend_from_slice(format!("\"{apostrophe}{text}\"").as_bytes());
    } else {
        out.extend_from_slice(apostrophe.as_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

/// Writes the response of a query in chunks, series by series as `I` yields them.
#[derive(Debug)]
pub struct QueryCsvWriter<I> {
    columns: CsvColumns,
    series: I,
    is_started: bool,
    current: Option<CsvSeries>,
}

/// A series of which some points are written.
#[derive(Debug)]
struct CsvSeries {
    series: SeriesResult,
    names: Vec<u8>,
    written: usize,
}

impl<I: Iterator<Item = SeriesResult>> QueryCsvWriter<I> {
    /// Starts a response with these series, whose tags the columns cover.
    pub const fn new(columns: CsvColumns, series: I) -> Self {
        Self { columns, series, is_started: false, current: None }
    }

    /// Appends to `out` until it holds `chunk_bytes` bytes or the response is complete. Returns false once the response
    /// is complete.
    pub fn write(&mut self, out: &mut Vec<u8>, chunk_bytes: usize) -> bool {
        if !self.is_started {
            self.columns.write_head(out);
            self.is_started = true;
        }
        loop {
            let next = || {
                let series = self.series.next()?;
                let names = self.columns.names(&series.metric, &series.tags);
                Some(CsvSeries { series, names, written: 0 })
            };
            let Some(mut current) = self.current.take().or_else(next) else { return false };
            let points = &current.series.points;
            while let (Some(time_ms), Some(value)) =
                (points.times_ms.get(current.written), points.value(current.written))
            {
                if out.len() >= chunk_bytes {
                    self.current = Some(current);
                    return true;
                }
                write_csv_row(out, *time_ms, &current.names, value);
                current.written += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tsd_model::{PointColumns, ValueKinds};

    use super::*;

    fn tags(tags: &[(&str, &str)]) -> Vec<(String, String)> {
        tags.iter().map(|(tagk, tagv)| ((*tagk).to_owned(), (*tagv).to_owned())).collect()
    }

    fn series(metric: &str, of: &[(&str, &str)], values: &[f64]) -> SeriesResult {
        let times_ms = (0..values.len() as i64).map(|at| 1_356_998_400_000 + at * 1_500).collect();
        let bits = values.iter().map(|value| value.to_bits()).collect();
        let points = PointColumns { times_ms, bits, kinds: ValueKinds::AllFloats };
        SeriesResult {
            metric: metric.to_owned(),
            tags: tags(of),
            points,
            ..SeriesResult::default()
        }
    }

    fn written(all: &[SeriesResult], chunk_bytes: usize) -> String {
        let columns = CsvColumns::new(all.iter().map(|series| &*series.tags));
        let mut writer = QueryCsvWriter::new(columns, all.iter().cloned());
        let mut text = Vec::new();
        loop {
            let mut chunk = Vec::new();
            let is_more = writer.write(&mut chunk, chunk_bytes);
            text.append(&mut chunk);
            if !is_more {
                return String::from_utf8_lossy(&text).into_owned();
            }
        }
    }

    #[test]
    fn each_point_is_a_row_whatever_the_chunks() {
        let all = [
            series("m", &[("host", "a"), ("dc", "x,y")], &[1.5, f64::NAN]),
            series("empty", &[], &[]),
            series("n", &[("host", "b")], &[-3e300]),
        ];
        let big = format!("-3{}", "0".repeat(300));
        let expected = format!(
            "time,timestamp_ms,metric,dc,host,value\r\n\
             2013-01-01T00:00:00.000Z,1356998400000,m,\"x,y\",a,1.5\r\n\
             2013-01-01T00:00:01.500Z,1356998401500,m,\"x,y\",a,\r\n\
             2013-01-01T00:00:00.000Z,1356998400000,n,,b,{big}\r\n"
        );
        for chunk_bytes in [1, 40, 100, usize::MAX] {
            assert_eq!(written(&all, chunk_bytes), expected, "{chunk_bytes}");
        }
        assert_eq!(written(&[], 1), "time,timestamp_ms,metric,value\r\n");
    }

    #[test]
    fn integers_keep_all_digits() {
        let mut out = Vec::new();
        write_csv_row(&mut out, -1, b"m,", Value::Integer(i64::MIN));
        let text = String::from_utf8_lossy(&out);
        assert_eq!(text, "1969-12-31T23:59:59.999Z,-1,m,-9223372036854775808\r\n");
    }

    #[test]
    fn no_text_is_a_formula() {
        for (text, expected) in [
            ("sys.cpu", "sys.cpu"),
            ("=1+1", "'=1+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            (" =1", "\"' =1\""),
            ("\u{a0}=1", "\"'\u{a0}=1\""),
            ("+a,\"b\"", "\"'+a,\"\"b\"\"\""),
            ("a;b", "\"a;b\""),
            ("\tx", "\"'\tx\""),
        ] {
            let mut out = Vec::new();
            write_text(&mut out, text);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }
}
