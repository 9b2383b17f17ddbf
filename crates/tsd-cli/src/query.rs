//! `tsdb query`: prints the points of a query.

mod args;
mod from_daemon;
mod graph;
mod json;
mod series;

use std::{
    io::{self, BufWriter, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use tsd_engine::{EngineHandle, QueryControl};
use tsd_model::Value;
use tsd_protocol::{CsvColumns, write_csv_row};
use tsd_query::Clock;

pub(crate) use args::{ParsedArgs, QueryArgsError, parse};
use graph::GraphFrame;
pub(crate) use graph::GraphTarget;
use series::Series;

use crate::daemon_client::DaemonClient;

/// Bytes of rows that are written at once.
const CSV_CHUNK: usize = 64 << 10;

/// The form of a result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueryOutput<'a> {
    /// A line for each point.
    Lines,
    /// An array of series.
    Json,
    /// A row for each point.
    Csv,
    /// A graph, to a file or the terminal.
    Graph(&'a GraphTarget),
}

/// Runs a query and prints its points to standard output, or draws a graph.
pub(crate) async fn print(
    engine: &EngineHandle,
    args: &ParsedArgs,
    clock: &Clock,
    output: QueryOutput<'_>,
) -> anyhow::Result<()> {
    let query = args.query.validate(clock)?;
    let range_ms = (query.start_ms, query.end_ms);
    let answer = engine.reads().query(query, QueryControl::default()).await?;
    let series = answer.sub_results.iter().flat_map(|sub| &sub.series).map(|series| Series {
        metric: series.metric.clone(),
        tags: series.tags.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        aggregate_tags: series.aggregate_tags.clone(),
        points: series
            .points
            .times_ms
            .iter()
            .enumerate()
            .filter_map(|(at, time_ms)| Some((*time_ms, series.points.value(at)?)))
            .collect(),
    });
    let frame = GraphFrame { range_ms, zone: clock.zone.clone(), options: &args.options };
    write_result(series, frame, output)
}

/// As [`print`], through the HTTP API of a daemon.
pub(crate) async fn print_from_daemon(
    mut daemon: DaemonClient,
    args: &ParsedArgs,
    clock: &Clock,
    output: QueryOutput<'_>,
) -> anyhow::Result<()> {
    let query = args.query.validate(clock)?;
    let range_ms = (query.start_ms, query.end_ms);
    let series = from_daemon::query(&mut daemon, args).await?;
    let frame = GraphFrame { range_ms, zone: clock.zone.clone(), options: &args.options };
    write_result(series.into_iter(), frame, output)
}

fn write_result(
    series: impl Iterator<Item = Series>,
    frame: GraphFrame<'_>,
    output: QueryOutput<'_>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut series = series;
    let printed = match output {
        QueryOutput::Graph(target) => return target.write(&series.collect::<Vec<_>>(), frame),
        QueryOutput::Lines => series.try_for_each(|series| print_series(&mut out, &series)),
        QueryOutput::Json => json::write(&mut out, series),
        QueryOutput::Csv => write_csv(&mut out, &series.collect::<Vec<_>>()),
    };
    match printed.and_then(|()| out.flush()) {
        // The reader of the pipe, such as `head`, has closed it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // The buffered text has no reader either.
            let _ = out.into_parts();
            Ok(())
        }
        printed => Ok(printed?),
    }
}

fn write_csv(out: &mut impl Write, all: &[Series]) -> io::Result<()> {
    let columns = CsvColumns::new(all.iter().map(|series| &*series.tags));
    let mut rows = Vec::new();
    columns.write_head(&mut rows);
    for series in all {
        let names = columns.names(&series.metric, &series.tags);
        for (time_ms, value) in &series.points {
            write_csv_row(&mut rows, *time_ms, &names, *value);
            if rows.len() >= CSV_CHUNK {
                out.write_all(&rows)?;
                rows.clear();
            }
        }
    }
    out.write_all(&rows)
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
fn print_series(out: &mut impl Write, series: &Series) -> io::Result<()> {
    let tags: Vec<_> = series.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let tags = tags.join(", ");
    let metric = &series.metric;
    for (time_ms, value) in &series.points {
        match value {
            Value::Integer(n) => writeln!(out, "{metric} {time_ms} {n} {{{tags}}}")?,
            Value::Float(x) => writeln!(out, "{metric} {time_ms} {x:.6} {{{tags}}}")?,
        }
    }
    Ok(())
}
