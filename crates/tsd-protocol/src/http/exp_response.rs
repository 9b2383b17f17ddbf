//! Writes the response of `/api/query/exp` in chunks.

use std::sync::Arc;

use tsd_query::{ExpOutput, ExpResult};

use super::query_response::write_double;
use crate::json::JsonObject;

/// Writes the response of a query with expressions, output by output, row by row.
#[derive(Debug)]
pub struct ExpResponseWriter {
    outputs: std::vec::IntoIter<ExpOutput>,
    /// The request, rendered by [`crate::render_exp_query`].
    query: Arc<str>,
    state: ExpWriterState,
    first: bool,
}

#[derive(Debug)]
enum ExpWriterState {
    Start,
    Next,
    /// The current output, and the number of rows written.
    Rows(Box<ExpOutput>, usize),
    Done,
}

impl ExpResponseWriter {
    /// Starts a response; `query` is the rendered request.
    #[must_use]
    pub fn new(result: ExpResult, query: Arc<str>) -> Self {
        Self {
            outputs: result.outputs.into_iter(),
            query,
            state: ExpWriterState::Start,
            first: true,
        }
    }

    /// Appends to `out` until it holds `chunk_bytes` bytes or the response is complete. Returns
    /// false once the response is complete.
    ///
    /// A chunk may exceed `chunk_bytes` by one row or by the metadata of one output.
    pub fn write(&mut self, out: &mut Vec<u8>, chunk_bytes: usize) -> bool {
        loop {
            match std::mem::replace(&mut self.state, ExpWriterState::Done) {
                ExpWriterState::Start => {
                    out.extend_from_slice(b"{\"outputs\":[");
                    self.state = ExpWriterState::Next;
                }
                ExpWriterState::Next => {
                    let Some(output) = self.outputs.next() else {
                        out.extend_from_slice(b"],\"query\":");
                        out.extend_from_slice(self.query.as_bytes());
                        out.push(b'}');
                        return false;
                    };
                    if !std::mem::take(&mut self.first) {
                        out.push(b',');
                    }
                    write_head(out, &output);
                    self.state = ExpWriterState::Rows(Box::new(output), 0);
                }
                ExpWriterState::Rows(output, from) => {
                    let to = write_rows(out, &output, from, chunk_bytes);
                    if to < output.rows.len() {
                        self.state = ExpWriterState::Rows(output, to);
                    } else {
                        write_tail(out, &output);
                        self.state = ExpWriterState::Next;
                    }
                }
                ExpWriterState::Done => return false,
            }
            if out.len() >= chunk_bytes {
                return true;
            }
        }
    }
}

fn write_head(out: &mut Vec<u8>, output: &ExpOutput) {
    let mut object = JsonObject::open(out);
    object.string("id", &output.id);
    if let Some(alias) = &output.alias {
        object.string("alias", alias);
    }
    object.key("dps").push(b'[');
}

/// Writes rows from index `from`; returns the index of the next one.
fn write_rows(out: &mut Vec<u8>, output: &ExpOutput, from: usize, chunk_bytes: usize) -> usize {
    let mut digits = itoa::Buffer::new();
    for (i, (time_ms, values)) in output.rows.iter().enumerate().skip(from) {
        if out.len() >= chunk_bytes {
            return i;
        }
        out.extend_from_slice(if i > 0 { b",[" } else { b"[" });
        out.extend_from_slice(digits.format(*time_ms).as_bytes());
        for value in values {
            out.push(b',');
            write_double(out, *value, false);
        }
        out.push(b']');
    }
    output.rows.len()
}

/// Writes everything after the rows. An output without series has no `meta`.
fn write_tail(out: &mut Vec<u8>, output: &ExpOutput) {
    out.extend_from_slice(b"],\"dpsMeta\":");
    JsonObject::open(out)
        .literal("firstTimestamp", output.first_ms)
        .literal("lastTimestamp", output.last_ms)
        .literal("setCount", output.rows.len())
        .literal("series", output.columns.len())
        .close();
    if !output.columns.is_empty() {
        out.extend_from_slice(br#","meta":[{"index":0,"metrics":["timestamp"]}"#);
        for (i, column) in output.columns.iter().enumerate() {
            out.push(b',');
            JsonObject::open(out)
                .literal("index", i + 1)
                .strings("metrics", &column.metrics)
                .tags("commonTags", &column.common_tags)
                .strings("aggregatedTags", &column.aggregated_tags)
                .close();
        }
        out.push(b']');
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use tsd_query::ExpColumn;

    use super::*;

    fn result() -> ExpResult {
        let column = |host: &str| ExpColumn {
            metrics: vec!["a".into(), "b".into()],
            common_tags: vec![("host".into(), host.into())],
            aggregated_tags: vec!["cpu".into()],
        };
        ExpResult {
            outputs: vec![
                ExpOutput {
                    id: "e".into(),
                    alias: Some("both".into()),
                    rows: vec![(1_000, vec![1.0, f64::NAN]), (2_000, vec![1.0e7, 0.5])],
                    first_ms: 1_000,
                    last_ms: 2_000,
                    columns: vec![column("w1"), column("w2")],
                },
                ExpOutput {
                    id: "m".into(),
                    alias: None,
                    rows: Vec::new(),
                    first_ms: i64::MAX,
                    last_ms: 0,
                    columns: Vec::new(),
                },
            ],
        }
    }

    #[test]
    fn responses_have_opentsdbs_shape() {
        let mut out = Vec::new();
        assert!(!ExpResponseWriter::new(result(), "{}".into()).write(&mut out, usize::MAX));
        insta::assert_snapshot!(String::from_utf8_lossy(&out));
    }

    #[test]
    fn chunks_add_up_to_the_same_response() {
        let mut whole = Vec::new();
        ExpResponseWriter::new(result(), "{}".into()).write(&mut whole, usize::MAX);
        let mut writer = ExpResponseWriter::new(result(), "{}".into());
        let mut chunks = Vec::new();
        let mut more = true;
        while more {
            let mut chunk = Vec::new();
            more = writer.write(&mut chunk, 1);
            chunks.extend(chunk);
        }
        assert_eq!(chunks, whole);
    }
}
