//! `tsdb query`: prints the points of a query.

mod args;
mod graph;

use std::{
    io::{self, BufWriter, Write},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use tsd_engine::{EngineHandle, QueryControl, ResultSeries};
use tsd_model::Value;
use tsd_query::Clock;

pub(crate) use args::{ParsedArgs, QueryArgsError, parse};

/// Runs a query and prints its points to standard output, or writes the files of a graph.
pub(crate) async fn print(
    engine: &EngineHandle,
    args: &ParsedArgs,
    clock: &Clock,
    graph: Option<&Path>,
) -> anyhow::Result<()> {
    let query = args.query.validate(clock)?;
    let answer = engine.query(query, QueryControl::default()).await?;
    if let Some(base) = graph {
        let series: Vec<&ResultSeries> =
            answer.sub_results.iter().flat_map(|sub| &sub.series).collect();
        return graph::write_files(base, &series, &args.options);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    for series in answer.sub_results.iter().flat_map(|sub| &sub.series) {
        match print_series(&mut out, series) {
            // The reader of the pipe, such as `head`, has closed it.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            printed => printed?,
        }
    }
    Ok(out.flush()?)
}

/// The current time, with a validated time zone.
pub(crate) fn clock(zone_name: &str) -> Clock {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = Clock::utc(now.as_millis() as i64);
    match tsd_query::find_zone(zone_name) {
        Some(zone) => Clock { zone, ..clock },
        None => clock,
    }
}

/// `METRIC MILLISECONDS VALUE {TAGK=TAGV, ...}`, one line per point; floating point with six decimals.
fn print_series(out: &mut impl Write, series: &ResultSeries) -> io::Result<()> {
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
