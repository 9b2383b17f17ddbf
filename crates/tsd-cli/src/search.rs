//! `tsdb search lookup`: lists series by metric and tags, in the format of OpenTSDB 2.1.
//!
//! Later versions of OpenTSDB find the series but do not print them.

use std::{fmt::Write as _, process::ExitCode};

use anyhow::Context;
use serde_json::{Value, json};
use tsd_engine::{EngineHandle, Lookup, LookupSeries, QueryControl, UnnamedSeries};
use tsd_model::{from_hex, sort_as_sized_hash_map, to_hex};
use tsd_protocol::unnamed_series_text;

use crate::{
    args::SearchArgs,
    daemon_client::DaemonClient,
    json_fields::{elements, texts},
    node::OpenEngine,
    print_lines,
    store::Purpose,
    tell,
    tool::{by_daemon_or_store, failed, prepare, with_engine},
};

/// Exit status of an invalid command line.
const USAGE: u8 = 2;

/// Words that are not a search.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum SearchArgsError {
    #[error("Unknown sub command: {0}; expected lookup [METRIC] [TAGK=TAGV | TAGK= | =TAGV ...]")]
    SubCommand(String),
    #[error("Not enough arguments; expected lookup [METRIC] [TAGK=TAGV | TAGK= | =TAGV ...]")]
    TooFew,
    #[error("invalid tag: {0}")]
    Tag(String),
}

/// Runs the command.
pub(crate) fn main(args: &SearchArgs) -> ExitCode {
    let lookup = match parse(&args.words) {
        Ok(lookup) => Lookup { limit: args.limit, skips_unnamed: true, ..lookup },
        Err(error) => {
            tell!("tsdb: {error}");
            return ExitCode::from(USAGE);
        }
    };
    match run(args, &lookup).and_then(|found| print(args, &lookup, &found)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn print(args: &SearchArgs, lookup: &Lookup, found: &FoundSeries) -> anyhow::Result<()> {
    let FoundSeries { series, unnamed } = found;
    for text in unnamed {
        tell!("tsdb: {text}");
    }
    print_lines(&if args.json { as_json(series) } else { as_lines(series) })?;
    if lookup.limit > 0 && series.len() + unnamed.len() >= lookup.limit {
        tell!("tsdb: there may be more than {} series; --limit 0 lists all", lookup.limit);
    }
    Ok(())
}

/// Parses `lookup [METRIC] [TAGK=TAGV | TAGK= | =TAGV ...]`.
fn parse(words: &[String]) -> Result<Lookup, SearchArgsError> {
    let (command, rest) = words.split_first().ok_or(SearchArgsError::TooFew)?;
    if command != "lookup" {
        return Err(SearchArgsError::SubCommand(command.clone()));
    }
    let (metric, tags) = match rest.split_first() {
        None => return Err(SearchArgsError::TooFew),
        Some((metric, tags)) if !metric.contains('=') => (Some(metric.clone()), tags),
        Some(_) => (None, rest),
    };
    let tag = |word: &String| {
        let bad = || SearchArgsError::Tag(word.clone());
        let (tagk, tagv) = word.split_once('=').ok_or_else(bad)?;
        if tagv.contains('=') || (tagk.is_empty() && tagv.is_empty()) {
            return Err(bad());
        }
        let side = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok((side(tagk), side(tagv)))
    };
    let tags = tags.iter().map(tag).collect::<Result<_, _>>()?;
    Ok(Lookup { metric, tags, ..Lookup::default() })
}

/// The result of a search.
#[derive(Debug, Default, PartialEq)]
struct FoundSeries {
    series: Vec<LookupSeries>,
    /// Messages about series without a name, which OpenTSDB's tool also logs.
    unnamed: Vec<String>,
}

fn run(args: &SearchArgs, lookup: &Lookup) -> anyhow::Result<FoundSeries> {
    let config = args.overrides.load_verbose(args.verbose, "tsdb search without --verbose")?;
    let (config, settings) = prepare(config)?;
    let by_daemon = async |client| from_daemon(client, lookup, args.use_data_table).await;
    let on_store = async |open: &OpenEngine| {
        // Decides as a daemon does: without recorded series, the meta table is empty. The engine of a tool does not
        // record series.
        let is_tracked = open.engine.config().tracks_series() || settings.engine.tracks_series();
        let use_meta = if args.use_data_table { Some(false) } else { is_tracked.then_some(true) };
        from_engine(&open.engine, Lookup { use_meta, ..lookup.clone() }).await
    };
    by_daemon_or_store(args.url.as_deref(), "searching", by_daemon, || {
        with_engine(&config, &settings, Purpose::Query, on_store)
    })
}

async fn from_engine(engine: &EngineHandle, lookup: Lookup) -> anyhow::Result<FoundSeries> {
    let (result, _guard) = engine.reads().lookup(lookup, QueryControl::default()).await?;
    let text = |UnnamedSeries { tsuid, uid: (kind, uid) }: &UnnamedSeries| {
        unnamed_series_text(tsuid, *kind, uid)
    };
    Ok(FoundSeries { unnamed: result.unnamed.iter().map(text).collect(), series: result.series })
}

async fn from_daemon(
    mut daemon: DaemonClient,
    lookup: &Lookup,
    use_data_table: bool,
) -> anyhow::Result<FoundSeries> {
    let body = body(lookup, use_data_table).to_string();
    let response = daemon.post("/api/search/lookup", body).await?;
    let body = daemon.json_of(&response)?;
    let results = body.get("results").and_then(Value::as_array);
    let series = results
        .and_then(|results| results.iter().map(series).collect())
        .context("the response is not the result of a search")?;
    let unnamed = elements(&body, "unnamed").iter();
    let unnamed = unnamed.filter_map(|text| text.as_str().map(str::to_owned)).collect();
    Ok(FoundSeries { series, unnamed })
}

/// The body of `/api/search/lookup`. The daemon chooses the table unless `use_data_table` is set.
fn body(lookup: &Lookup, use_data_table: bool) -> Value {
    let tags: Vec<Value> =
        lookup.tags.iter().map(|(tagk, tagv)| json!({ "key": tagk, "value": tagv })).collect();
    let mut body = vec![
        ("limit", json!(lookup.limit)),
        ("tags", json!(tags)),
        ("skipUnnamed", json!(lookup.skips_unnamed)),
    ];
    body.extend(lookup.metric.as_ref().map(|metric| ("metric", json!(metric))));
    body.extend(use_data_table.then_some(("useMeta", json!(false))));
    body.into_iter().collect()
}

/// An element of the response.
fn series(element: &Value) -> Option<LookupSeries> {
    Some(LookupSeries {
        tsuid: from_hex(element.get("tsuid")?.as_str()?.as_bytes())?.into(),
        metric: element.get("metric")?.as_str()?.to_owned(),
        tags: texts(element.get("tags")?.as_object()?)?,
    })
}

/// `TSUID METRIC TAGK=TAGV ... `: tags in the order of Java's map, each followed by a blank.
fn as_lines(series: &[LookupSeries]) -> String {
    let mut lines = String::new();
    for LookupSeries { tsuid, metric, tags } in series {
        let mut tags = tags.clone();
        sort_as_sized_hash_map(&mut tags, |(tagk, _)| tagk);
        let _ = write!(lines, "{} {metric} ", to_hex(tsuid));
        for (tagk, tagv) in &tags {
            let _ = write!(lines, "{tagk}={tagv} ");
        }
        lines.push('\n');
    }
    lines
}

fn as_json(series: &[LookupSeries]) -> String {
    let element = |LookupSeries { tsuid, metric, tags }: &LookupSeries| {
        let tags: Value = tags.iter().cloned().collect();
        json!({ "tsuid": to_hex(tsuid), "metric": metric, "tags": tags })
    };
    let series: Vec<Value> = series.iter().map(element).collect();
    format!("{:#}\n", json!(series))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parse_text(text: &str) -> Result<Lookup, SearchArgsError> {
        parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    fn pair(tagk: &str, tagv: &str) -> (Option<String>, Option<String>) {
        let side = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        (side(tagk), side(tagv))
    }

    #[test]
    fn metric_and_sides_of_tags_are_optional() {
        let lookup = parse_text("lookup m host=a dc= =b").unwrap();
        assert_eq!(lookup.metric.as_deref(), Some("m"));
        assert_eq!(lookup.tags, [pair("host", "a"), pair("dc", ""), pair("", "b")]);
        let lookup = parse_text("lookup host=*").unwrap();
        assert_eq!((lookup.metric, lookup.tags), (None, vec![pair("host", "*")]));
    }

    #[test]
    fn words_that_are_no_search_are_errors() {
        assert_eq!(parse_text("lookup"), Err(SearchArgsError::TooFew));
        assert_eq!(parse_text("find m"), Err(SearchArgsError::SubCommand("find".to_owned())));
        for tag in ["host", "=", "a=b=c"] {
            let expected = Err(SearchArgsError::Tag(tag.to_owned()));
            assert_eq!(parse_text(&format!("lookup m {tag}")), expected);
        }
    }

    #[test]
    fn lines_are_those_of_opentsdb() {
        let tags = [("host", "a"), ("dc", "b")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let found = LookupSeries {
            tsuid: vec![0, 0, 1, 0, 0, 0xFE].into(),
            metric: "m".to_owned(),
            tags: tags.to_vec(),
        };
        let without = LookupSeries { tags: Vec::new(), ..found.clone() };
        assert_eq!(as_lines(&[found, without]), "0000010000FE m host=a dc=b \n0000010000FE m \n");
    }

    #[test]
    fn request_and_response_of_a_daemon_are_those_of_the_api() {
        let lookup = Lookup { limit: 3, ..parse_text("lookup m host= =b").unwrap() };
        let expected = json!({
            "metric": "m", "limit": 3, "useMeta": false,
            "tags": [{"key": "host", "value": null}, {"key": null, "value": "b"}],
            "skipUnnamed": false,
        });
        assert_eq!(body(&lookup, true), expected);
        let element = json!({"tsuid": "0001", "metric": "m", "tags": {"host": "a"}});
        let found = series(&element).unwrap();
        assert_eq!((found.tsuid.to_vec(), found.tags.len()), (vec![0, 1], 1));
        assert!(series(&json!({"tsuid": "0001"})).is_none());
    }
}
