//! Parameters of `/q`, OpenTSDB's endpoint of graphs.
//!
//! The options of the picture are parsed by `tsd-graph`, which refuses what it does not draw: OpenTSDB
//! handed them to gnuplot, where a text could be a command. Here is the rest: which form is requested, the
//! sub queries with their axes, times, and how long a client may keep the response.

use jiff::tz::TimeZone;
use tsd_graph::{PlotOptions, YAxis};
use tsd_query::{Clock, Query, RawQuery, find_zone};

use super::{query_error::query_error, query_request::parse_query_uri};
use crate::{ApiError, QueryString};

/// What the points of a range may still be written to, in seconds: a row.
const RECENT_SECS: i64 = 3_600;
/// How long a response about the past may be kept.
const DAY_SECS: i64 = 86_400;
/// Most characters of a parameter that an error repeats.
const SHOWN_CHARS: usize = 64;

/// Form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphForm {
    /// Lines of points.
    Ascii,
    /// What a graph would show.
    Json,
    /// A picture.
    Png,
}

impl GraphForm {
    /// The form that the parameters request; `None` is the page of OpenTSDB's user interface.
    #[must_use]
    pub fn requested(query: &QueryString) -> Option<Self> {
        [("ascii", Self::Ascii), ("json", Self::Json), ("png", Self::Png)]
            .into_iter()
            .find_map(|(name, form)| query.has(name).then_some(form))
    }
}

/// A request of a graph before its times are known.
#[derive(Clone, Debug)]
pub struct GraphRequest {
    /// The query.
    pub raw: RawQuery,
    /// Options of the picture.
    pub plot: PlotOptions,
    /// `o`, one for each sub query.
    axes: Option<Vec<YAxis>>,
}

/// A valid request of a graph.
#[derive(Clone, Debug)]
pub struct GraphQuery {
    /// The query, in whole seconds. Its result has all points that were read.
    pub query: Query,
    /// The axis of each sub query.
    pub axes: Vec<YAxis>,
    /// Time zone of the picture.
    pub zone: TimeZone,
    /// How many seconds a client may keep the response.
    pub max_age_secs: i64,
}

/// Parses the parameters of a graph.
pub fn parse_graph_request(query: &QueryString) -> Result<GraphRequest, ApiError> {
    let plot = parse_plot(query)?;
    let axes = parse_axes(query)?;
    let mut raw = parse_query_uri(query).map_err(ApiError::into_client_error)?;
    if let Some(name) = query.get("tz").filter(|name| !name.is_empty()) {
        if find_zone(name).is_none() {
            let shown: String = name.chars().take(SHOWN_CHARS).collect();
            return Err(ApiError::new(400, format!("Invalid timezone name: {shown}")));
        }
        raw.timezone = Some(name.to_owned());
    }
    Ok(GraphRequest { raw, plot, axes })
}

/// Parses the options of the picture; the last value of each counts.
fn parse_plot(query: &QueryString) -> Result<PlotOptions, ApiError> {
    let values: Vec<(&str, String)> = PlotOptions::NAMES
        .into_iter()
        .filter_map(|name| Some((name, decode_again(query.get(name)?, name.ends_with("format")))))
        .collect();
    let value_of = |asked: &str| {
        values.iter().find(|(name, _)| *name == asked).map(|(_, value)| value.as_str())
    };
    PlotOptions::parse(value_of).map_err(|error| ApiError::new(400, error.to_string()))
}

/// Decodes a value once more, as OpenTSDB does and its user interface expects. A value that is no escaped
/// text stays as it is, where OpenTSDB fails: `yformat=%25.2f` is `%.2f`.
fn decode_again(text: &str, is_format: bool) -> String {
    if is_format {
        // Conversions look like escapes: only the percent sign itself is taken for one.
        return text.replace("%25", "%");
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next(), rest.next()].map(|digit| char::from(digit?).to_digit(16));
        let [Some(high), Some(low)] = digits else { return text.to_owned() };
        bytes.push((high << 4 | low) as u8);
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Parses `o`. Of gnuplot's options of a line only the axis is drawn, as OpenTSDB allows by default.
fn parse_axes(query: &QueryString) -> Result<Option<Vec<YAxis>>, ApiError> {
    let mut axes = None;
    for (index, option) in query.all("o").enumerate() {
        let axis = match option.trim() {
            "" => YAxis::Left,
            "axis x1y2" => YAxis::Right,
            _ => {
                let text = format!("Query option at index {index} was not in the allow list.");
                return Err(ApiError::new(400, text));
            }
        };
        axes.get_or_insert_with(Vec::new).push(axis);
    }
    Ok(axes)
}

impl GraphRequest {
    /// Checks everything that does not need name lookups.
    pub fn validate(&self, clock: &Clock) -> Result<GraphQuery, ApiError> {
        let invalid = |error| query_error(&error, Some(&self.raw)).into_client_error();
        let mut query = self.raw.validate(clock).map_err(invalid)?;
        let (start, end) = (query.start_ms.div_euclid(1_000), query.end_ms.div_euclid(1_000));
        if start >= end {
            let text = format!("start time ({start}) is greater than or equal to end time: {end}");
            return Err(ApiError::new(400, text));
        }
        query.start_ms = start * 1_000;
        query.end_ms = end * 1_000;
        query.all_points = true;
        let count = query.sub_queries.len();
        let axes = match &self.axes {
            None => vec![YAxis::Left; count],
            Some(axes) if axes.len() == count => axes.clone(),
            Some(axes) => {
                let text = format!("{} `o' parameters, but {count} `m' parameters.", axes.len());
                return Err(ApiError::new(400, text));
            }
        };
        let zone = self.raw.timezone.as_deref().and_then(find_zone);
        Ok(GraphQuery {
            max_age_secs: self.max_age_secs((start, end), clock.now_ms.div_euclid(1_000)),
            zone: zone.unwrap_or_else(|| clock.zone.clone()),
            axes,
            query,
        })
    }

    /// What is in the future may change at once, what is long past does not, and of anything else a
    /// thousandth of the range may be missing.
    fn max_age_secs(&self, (start, end): (i64, i64), now: i64) -> i64 {
        let is_relative =
            |text: &Option<String>| text.as_deref().is_some_and(|text| text.ends_with("-ago"));
        if end > now {
            0
        } else if end < now - RECENT_SECS
            && !is_relative(&self.raw.start)
            && !is_relative(&self.raw.end)
        {
            DAY_SECS
        } else {
            (end - start) >> 10
        }
    }
}

#[cfg(test)]
mod tests;
