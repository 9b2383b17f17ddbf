//! `tsdb query`: prints the points of a query.

mod args;
mod from_daemon;
mod graph;
mod json;
mod last;
mod query_output;
mod request;
mod series;

use std::{
    io::{self, BufWriter, Write},
    time::{SystemTime, UNIX_EPOCH},
};

use tsd_engine::{EngineHandle, GexpResult, QueryControl};
use tsd_model::{PointColumns, Value};
use tsd_protocol::{
    CsvColumns, ExpResponseWriter, parse_exp_body, render_exp_query, write_csv_row,
};
use tsd_query::Clock;

pub(crate) use args::{ParsedArgs, QueryArgsError, parse};
use graph::GraphFrame;
pub(crate) use graph::GraphTarget;
pub(crate) use query_output::QueryOutput;
pub(crate) use request::{QueryRequest, parse_request};
use series::Series;

use crate::daemon_client::DaemonClient;

/// Bytes of a result that are written at once.
const OUTPUT_CHUNK: usize = 64 << 10;

/// Runs a query and prints its points to standard output, or draws a graph.
pub(crate) async fn print(
    engine: &EngineHandle,
    request: &QueryRequest,
    clock: &Clock,
    output: QueryOutput<'_>,
) -> anyhow::Result<()> {
    let reads = engine.reads();
    let control = QueryControl::default();
    let frame = request.frame(clock)?;
    match request {
        QueryRequest::Points(args) => {
            let answer = reads.query(args.query.validate(clock)?, control).await?;
            let series =
                answer.sub_results.iter().flat_map(|sub| &sub.series).map(|series| Series {
                    metric: series.metric.clone(),
                    tags: series.tags.clone(),
                    aggregate_tags: series.aggregate_tags.clone(),
                    points: points(&series.points),
                });
            write_result(series, frame, output)
        }
        QueryRequest::Gexp(args) => {
            let GexpResult { series, guard: _guard, .. } =
                reads.query_gexp(args.query(clock)?, control).await?;
            let series = series.into_iter().map(|evaluated| Series {
                points: points(&evaluated.series.points),
                metric: evaluated.series.metric,
                tags: evaluated.series.tags,
                aggregate_tags: evaluated.series.aggregate_tags,
            });
            write_result(series, frame, output)
        }
        QueryRequest::Last(args) => {
            let (found, _guard) = reads.last_points(last::query(args)?, control).await?;
            write_result(found.into_iter().map(last::series), frame, output)
        }
        QueryRequest::Exp(body) => {
            let raw = parse_exp_body(body)?;
            let (result, _guard) = reads.query_exp(raw.validate(clock)?, control).await?;
            let mut response = ExpResponseWriter::new(result, render_exp_query(&raw).into());
            write_output(|out| {
                let mut chunk = Vec::new();
                while response.write(&mut chunk, OUTPUT_CHUNK) {
                    out.write_all(&chunk)?;
                    chunk.clear();
                }
                out.write_all(&chunk)?;
                writeln!(out)
            })
        }
    }
}

/// As [`print`], through the HTTP API of a daemon.
pub(crate) async fn print_from_daemon(
    mut daemon: DaemonClient,
    request: &QueryRequest,
    clock: &Clock,
    output: QueryOutput<'_>,
) -> anyhow::Result<()> {
    let frame = request.frame(clock)?;
    let series = match request {
        QueryRequest::Points(args) => from_daemon::query(&mut daemon, args).await?,
        QueryRequest::Gexp(args) => from_daemon::series_of(&mut daemon, &args.path()).await?,
        QueryRequest::Last(args) => last::from_daemon(&mut daemon, args).await?,
        QueryRequest::Exp(body) => {
            let response = daemon.post("/api/query/exp", body.clone()).await?;
            daemon.check(&response)?;
            return write_output(|out| {
                out.write_all(&response.body)?;
                writeln!(out)
            });
        }
    };
    write_result(series.into_iter(), frame, output)
}

/// Times in epoch milliseconds, and values.
fn points(columns: &PointColumns) -> Vec<(i64, Value)> {
    let times = columns.times_ms.iter().enumerate();
    times.filter_map(|(at, time_ms)| Some((*time_ms, columns.value(at)?))).collect()
}

fn write_result(
    series: impl Iterator<Item = Series>,
    frame: GraphFrame<'_>,
    output: QueryOutput<'_>,
) -> anyhow::Result<()> {
    let mut series = series;
    match output {
        QueryOutput::Graph(target) => target.write(&series.collect::<Vec<_>>(), frame),
        QueryOutput::Lines => {
            write_output(|out| series.try_for_each(|series| print_series(out, &series)))
        }
        QueryOutput::Json => write_output(|out| json::write(out, series)),
        QueryOutput::Csv => write_output(|out| write_csv(out, &series.collect::<Vec<_>>())),
    }
}

/// Lets `write` print a result to standard output.
fn write_output(
    write: impl FnOnce(&mut BufWriter<io::StdoutLock<'static>>) -> io::Result<()>,
) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
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
            if rows.len() >= OUTPUT_CHUNK {
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
