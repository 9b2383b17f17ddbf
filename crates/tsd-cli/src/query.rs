//! `tsdb query`: points as lines.

mod words;

use std::{
    io::{self, BufWriter, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use tsd_engine::{AnswerSeries, EngineHandle, QueryControl};
use tsd_model::Value;
use tsd_query::{Clock, RawQuery};

pub(crate) use words::{WordsError, parse};

/// Runs a query and prints its points to standard output.
pub(crate) async fn print(
    engine: &EngineHandle,
    query: &RawQuery,
    clock: &Clock,
) -> anyhow::Result<()> {
    let answer = engine.query(query.validate(clock)?, QueryControl::default()).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    for series in answer.sub_answers.iter().flat_map(|sub| &sub.series) {
        match print_series(&mut out, series) {
            // Whoever reads has enough, as `head` does.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            printed => printed?,
        }
    }
    Ok(out.flush()?)
}

/// The present, with a zone that the configuration has checked.
pub(crate) fn clock(zone_name: &str) -> Clock {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Clock::utc(now.as_millis() as i64);
    match tsd_query::find_zone(zone_name) {
        Some(zone) => Clock { zone, ..clock },
        None => clock,
    }
}

/// `METRIC MILLISECONDS VALUE {TAGK=TAGV, ...}`, a line a point; floating values with six decimals.
fn print_series(out: &mut impl Write, series: &AnswerSeries) -> io::Result<()> {
    let tags: Vec<_> = series.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let tags = tags.join(", ");
    let metric = &series.metric;
    for (i, time_ms) in series.points.times_ms.iter().enumerate() {
        match series.points.value(i) {
            Some(Value::Integer(n)) => writeln!(out, "{metric} {time_ms} {n} {{{tags}}}")?,
            Some(Value::Float(x)) => writeln!(out, "{metric} {time_ms} {x:.6} {{{tags}}}")?,
            None => {}
        }
    }
    Ok(())
}
