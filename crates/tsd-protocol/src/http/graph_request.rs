//! Parameters of `/q`, OpenTSDB's endpoint of graphs.
//!
//! Covers the requested form, the sub queries with their axes, the times, and how long a client may
//! cache the response. `tsd-graph` parses the options of the picture and rejects options that it
//! cannot draw: OpenTSDB passes them to gnuplot, where a text can be a command.

use jiff::tz::TimeZone;
use tsd_graph::{PlotOptions, YAxis};
use tsd_query::{Clock, Query, RawQuery, find_zone};

use super::{query_error::query_error, query_request::parse_query_uri};
use crate::{ApiError, QueryString};

/// Age up to which a range still receives points, in seconds: the length of a row.
const RECENT_SECS: i64 = 3_600;
/// How long a client may cache a response about the past, in seconds.
const DAY_SECS: i64 = 86_400;
/// Maximum characters of a parameter that an error repeats.
const SHOWN_CHARS: usize = 64;

/// Form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphForm {
    /// Lines of points.
    Ascii,
    /// A summary of the graph.
    Json,
    /// A picture.
    Png,
}

impl GraphForm {
    /// Returns the form that the parameters request; `None` is the page of OpenTSDB's user interface.
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
    /// The query, in whole seconds. Its result has all points that it read.
    pub query: Query,
    /// The axis of each sub query.
    pub axes: Vec<YAxis>,
    /// Time zone of the picture.
    pub zone: TimeZone,
    /// How many seconds a client may cache the response.
    pub max_age_secs: i64,
}

/// Parses the parameters of a graph.
pub fn parse_graph_request(query: &QueryString) -> Result<GraphRequest, ApiError> {
    let plot = parse_plot(query)?;
    let axes = parse_axes(query)?;
    let mut raw = parse_query_uri(query)?;
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

/// Decodes a value once more, as OpenTSDB does and its user interface expects. A value that is not
/// escaped text stays as it is, while OpenTSDB fails: `yformat=%25.2f` is `%.2f`.
fn decode_again(text: &str, is_format: bool) -> String {
    if is_format {
        // Conversions look like escapes, so only an escaped percent sign is decoded.
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

/// Parses `o`. Of gnuplot's options of a line, only the axis is supported, as in OpenTSDB by default.
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
        let invalid = |error| query_error(&error, Some(&self.raw));
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

    /// Returns how long a client may cache the response. The future may change at once, the distant past
    /// does not change, and any other range may lack a thousandth of its length.
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
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW_SECS: i64 = 1_357_300_800;

    fn parse(text: &str) -> Result<GraphRequest, ApiError> {
        parse_graph_request(&QueryString::parse(text).unwrap())
    }

    fn validate(text: &str) -> Result<GraphQuery, ApiError> {
        parse(text)?.validate(&Clock::utc(NOW_SECS * 1_000))
    }

    #[track_caller]
    fn refuse(text: &str, part: &str) {
        let error = validate(text).unwrap_err();
        assert_eq!(error.legacy_status(), 400, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }

    /// Parameters of attacks on the command lines of OpenTSDB and gnuplot, on its cache files and on its
    /// pages, with the parameter that the response names.
    const ATTACKS: &[(&str, &str)] = &[
        // Back-ticks, plain and escaped twice.
        ("ylabel=%60id%60", "ylabel"),
        ("yrange=[0:%60id%60]", "yrange"),
        ("key=out%20%60id%60", "key"),
        ("title=%2560id%2560", "title"),
        ("title=%26%2396%3Bid", "title"),
        ("wxh=1516x644%60id%60", "wxh"),
        ("smooth=%60id%60", "smooth"),
        ("style=linespoint%60id%60", "style"),
        // Commands in ranges.
        ("yrange=[33:system('touch%20/tmp/x')]", "yrange"),
        ("y2range=[33:system('id')]", "y2range"),
        ("yrange=[0:(1)%3Bsystem(\"id\")]", "yrange"),
        ("yrange=[0:1]%0asystem('id')", "yrange"),
        ("yrange=[0:1]%3Bset%20output", "yrange"),
        // Lines of a script.
        ("key=out%0asystem%20'id'", "key"),
        ("key=%3Bsystem%20%22id%22%20%22", "key"),
        ("style=linespoint%0d%0asystem('id')", "style"),
        ("smooth=unique%0asystem('id')", "smooth"),
        ("ylabel=a%22%0asystem('id')", "ylabel"),
        ("title=a%22%3Bsystem('id')%3B%22", "title"),
        ("y2label=a%5C%22%3Bsystem('id')", "y2label"),
        ("yformat=%25s%22%0asystem('id')", "yformat"),
        ("y2format=%25s%60id%60", "y2format"),
        ("xformat=%25H%22%3Bsystem('id')", "xformat"),
        ("bgcolor=x000000%0asystem('id')", "bgcolor"),
        ("fgcolor=%22system('id')", "fgcolor"),
        ("o=axis%20x1y2%0asystem('id')", "allow list"),
        ("o=%60id%60", "allow list"),
        ("o=with%20lines", "allow list"),
        // Pages.
        ("ylabel=<script>alert(1)</script>", "ylabel"),
        ("key=<img src=x onerror=alert(1)>", "key"),
        ("tz=<script>", "timezone"),
        ("tz=../../etc/passwd", "timezone"),
        // Sizes.
        ("wxh=100000x100000", "wxh"),
        ("wxh=4294967296x100", "wxh"),
        ("wxh=-100x-100", "wxh"),
        ("wxh=99x99", "wxh"),
        ("yrange=[0:1e999]", "yrange"),
        ("yrange=[5:5]", "yrange"),
        ("yformat=%25999999999f", "yformat"),
        ("yformat=%25*d%25n", "yformat"),
        ("xformat=%25999d", "xformat"),
        ("bgcolor=xGGGGGG", "bgcolor"),
        ("bgcolor=red", "bgcolor"),
    ];

    #[test]
    fn attacks_are_refused_by_the_name_of_their_parameter() {
        for (parameter, named) in ATTACKS {
            for form in ["png", "json", "ascii"] {
                refuse(
                    &format!("start=1356998400&end=1357002000&m=sum:m&{parameter}&{form}"),
                    named,
                );
            }
        }
    }

    #[test]
    fn every_option_is_read() {
        let plot = parse(
            "start=1&m=sum:m&wxh=300x200&yrange=[0:10]&y2range=[:5]&ylabel=requests/s&y2label=b&\
         yformat=%25.2f&y2format=%25s%25c&xformat=%25H:%25M&ylog&y2log=false&key=out%20top&\
         title=a%20graph&bgcolor=x102030&fgcolor=xffffff&smooth=csplines&style=points",
        );
        // A range of a logarithmic axis must be positive.
        assert!(plot.unwrap_err().message.contains("yrange"));
        let plot = parse(
            "start=1&m=sum:m&wxh=300x200&yrange=[1:10]&ylabel=requests/s&yformat=%25.2f&ylog&\
         key=out%20top&title=a%20graph&nocache&ignore=7",
        );
        let plot = plot.unwrap().plot;
        assert_eq!((plot.size.width, plot.size.height), (300, 200));
        assert_eq!((plot.y.range.from, plot.y.range.to), (Some(1.0), Some(10.0)));
        assert_eq!(plot.y.label.as_deref(), Some("requests/s"));
        assert_eq!(plot.title.as_deref(), Some("a graph"));
        assert!(plot.y.is_log && plot.key.is_some_and(|key| key.is_outside));
        assert!(parse("start=1&m=sum:m&key=top&nokey").unwrap().plot.key.is_none());
    }

    #[test]
    fn values_may_be_escaped_twice() {
        let twice = parse("start=1&m=sum:m&yrange=%255B0:10%255D&title=a%2520b&yformat=%2525.1f");
        let twice = twice.unwrap().plot;
        let once = parse("start=1&m=sum:m&yrange=[0:10]&title=a%20b&yformat=%25.1f").unwrap().plot;
        assert_eq!((&twice.y.range, &twice.y.format), (&once.y.range, &once.y.format));
        assert_eq!(twice.title.as_deref(), Some("a b"));
        assert_eq!(
            parse("start=1&m=sum:m&title=95%25").unwrap().plot.title.as_deref(),
            Some("95%")
        );
    }

    #[test]
    fn each_sub_query_has_its_axis() {
        let axes = |text: &str| validate(&format!("start=1&end=2&{text}")).unwrap().axes;
        assert_eq!(axes("m=sum:a&m=sum:b"), [YAxis::Left, YAxis::Left]);
        assert_eq!(axes("m=sum:a&o=&m=sum:b&o=axis%20x1y2"), [YAxis::Left, YAxis::Right]);
        refuse("start=1&end=2&m=sum:a&m=sum:b&o=", "1 `o' parameters, but 2 `m' parameters.");
        refuse("start=1&end=2&m=sum:a&o=&o=", "2 `o' parameters, but 1 `m' parameters.");
        assert_eq!(axes("tsuid=sum:000001000001000001&o=axis%20x1y2"), [YAxis::Right]);
    }

    #[test]
    fn times_are_whole_seconds_in_their_zone() {
        let graph = validate("start=1356998400500&end=1356998401900&m=sum:m").unwrap();
        assert_eq!(
            (graph.query.start_ms, graph.query.end_ms),
            (1_356_998_400_000, 1_356_998_401_000)
        );
        assert!(graph.query.all_points);
        let graph = validate("start=2013/01/01-00:00&end=2013/01/02-00:00&m=sum:m&tz=Asia/Kolkata");
        let graph = graph.unwrap();
        assert_eq!(graph.query.start_ms, 1_356_978_600_000);
        assert_eq!(graph.zone.iana_name(), Some("Asia/Kolkata"));
        refuse("start=1356998400100&end=1356998400900&m=sum:m", "greater than or equal");
        refuse("start=10&end=5&m=sum:m", "");
        refuse("end=5&m=sum:m", "start");
        refuse("start=1&end=2", "Missing sub queries");
        refuse("start=1&end=2&m=nope:m", "nope");
        refuse("start=1&end=2&m=sum:m&tz=Nowhere/Land", "Invalid timezone name: Nowhere/Land");
    }

    #[test]
    fn responses_about_the_past_may_be_kept() {
        let age = |text: &str| validate(&format!("{text}&m=sum:m")).unwrap().max_age_secs;
        assert_eq!(age("start=1356998400&end=1357002000"), 86_400);
        assert_eq!(age("start=1356998400&end=1457002000"), 0);
        // The range ends now: a thousandth of an hour.
        assert_eq!(age("start=1h-ago"), 3);
        assert_eq!(age("start=1h-ago&end=1s-ago"), 3);
        assert_eq!(age("start=3d-ago&end=2d-ago"), 84);
        assert_eq!(age(&format!("start=1356998400&end={NOW_SECS}")), 295);
    }

    #[test]
    fn the_first_form_counts() {
        let form = |text: &str| GraphForm::requested(&QueryString::parse(text).unwrap());
        assert_eq!(form("png&ascii"), Some(GraphForm::Ascii));
        assert_eq!(form("png&json"), Some(GraphForm::Json));
        assert_eq!(form("m=x&png=1"), Some(GraphForm::Png));
        assert_eq!(form("m=x&html"), None);
    }

    proptest! {
        #[test]
        fn any_parameters_are_valid_or_refused(
            pairs in proptest::collection::vec(
                (0..PlotOptions::NAMES.len() + 4, "[\\[\\]:a-zA-Z0-9%+. '\"`;*-]{0,16}|\\PC{0,8}"), 0..8,
            ),
        ) {
            let mut text = "start=1356998400&end=1357002000&m=sum:m".to_owned();
            for (at, value) in pairs {
                let name = PlotOptions::NAMES.get(at).copied();
                let name = name.unwrap_or_else(|| ["o", "tz", "m", "tsuid"][at - PlotOptions::NAMES.len()]);
                let escaped = value.bytes().fold(String::new(), |escaped, b| format!("{escaped}%{b:02x}"));
                text = format!("{text}&{name}={escaped}");
            }
            if let Err(error) = validate(&text) {
                prop_assert_eq!(error.legacy_status(), 400, "{}", error);
            }
        }
    }
}
