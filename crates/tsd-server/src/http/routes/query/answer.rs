//! From the engine's answer to JSON.

use std::{iter, sync::Arc};

use bytes::Bytes;
use futures_util::stream;
use tsd_engine::{
    AnswerSeries, FillPolicy, Query, QueryAnswer, SubAnswer, SubQuery, SubQueryStages,
};
use tsd_protocol::{AnswerLayout, QueryAnswerWriter, SeriesAnswer, StatValue, render_sub_query};

use crate::http::{
    reply::{BrokenAnswer, ContentType, Reply},
    routes::upper_hex,
};

/// Size of a piece of an answer. What is smaller is sent whole, with its length.
const PIECE: usize = 64 << 10;

/// Numbers about an answer, in the order in which they are shown.
type Numbers = Vec<(String, StatValue)>;

/// The reply that carries an answer.
pub(super) fn reply(query: &Query, answer: QueryAnswer, layout: AnswerLayout) -> Reply {
    let summary = query.show_summary.then(|| summary(&answer));
    let parts: Vec<(Shown, SubAnswer)> =
        answer.sub_answers.into_iter().map(|part| (Shown::new(query, &part), part)).collect();
    let series = parts
        .into_iter()
        .flat_map(|(shown, part)| part.series.into_iter().map(move |series| shown.series(series)));
    let mut writer = QueryAnswerWriter::new(layout, series, summary);
    let mut first = Vec::new();
    if !writer.write(&mut first, PIECE) {
        return Reply::json(first);
    }
    let mut more = true;
    let rest = iter::from_fn(move || {
        if !more {
            return None;
        }
        let mut piece = Vec::with_capacity(PIECE + PIECE / 8);
        more = writer.write(&mut piece, PIECE);
        Some(piece)
    });
    let pieces =
        iter::once(first).chain(rest).map(|piece| Ok::<_, BrokenAnswer>(Bytes::from(piece)));
    Reply::pieces(ContentType::Json, Box::pin(stream::iter(pieces)))
}

/// What is shown with every series of a sub query.
#[derive(Clone, Debug, Default)]
struct Shown {
    query: Option<Arc<str>>,
    tsuids: bool,
    nan_as_null: bool,
    stats: Option<Numbers>,
}

impl Shown {
    fn new(query: &Query, part: &SubAnswer) -> Self {
        let sub: Option<&SubQuery> = query.sub_queries.iter().find(|sub| sub.index == part.index);
        Self {
            query: sub
                .filter(|_| query.show_query)
                .map(|sub| Arc::from(render_sub_query(sub, None))),
            tsuids: query.show_tsuids,
            nan_as_null: sub
                .and_then(|sub| sub.downsample.as_ref())
                .is_some_and(|spec| spec.fill == FillPolicy::Null),
            stats: query.show_stats.then(|| {
                let index = ("queryIndex".to_owned(), StatValue::Count(part.index as i64));
                iter::once(index).chain(numbers(&part.stages)).collect()
            }),
        }
    }

    fn series(&self, series: AnswerSeries) -> SeriesAnswer {
        let stats = self.stats.as_ref().map(|stats| {
            let emitted = StatValue::Count(series.points.len() as i64);
            let mut stats = stats.clone();
            stats.push(("emittedDPs".to_owned(), emitted));
            stats
        });
        SeriesAnswer {
            metric: series.metric,
            tags: series.tags,
            aggregate_tags: series.aggregate_tags,
            query: self.query.clone(),
            tsuids: self
                .tsuids
                .then(|| series.tsuids.iter().map(|tsuid| upper_hex(tsuid)).collect()),
            points: series.points,
            nan_as_null: self.nan_as_null,
            stats,
            ..SeriesAnswer::default()
        }
    }
}

/// What reading a sub query's rows took.
fn numbers(part: &SubQueryStages) -> Numbers {
    let count = |name: &str, n: u64| {
        (name.to_owned(), StatValue::Count(i64::try_from(n).unwrap_or(i64::MAX)))
    };
    vec![
        count("rowsFromStorage", part.rows()),
        count("columnsFromStorage", part.cells()),
        count("bytesFromStorage", part.bytes()),
        ("totalTime".to_owned(), StatValue::Millis(part.total.as_secs_f64() * 1_000.0)),
    ]
}

/// Sums over all sub queries, then each of them.
fn summary(answer: &QueryAnswer) -> Numbers {
    let parts = &answer.sub_answers;
    let total = SubQueryStages {
        scanners: parts.iter().flat_map(|part| part.stages.scanners.clone()).collect(),
        // They run beside one another.
        total: parts.iter().map(|part| part.stages.total).max().unwrap_or_default(),
        ..SubQueryStages::default()
    };
    let emitted: usize =
        parts.iter().flat_map(|part| &part.series).map(|series| series.points.len()).sum();
    let mut summary = numbers(&total);
    summary.push(("emittedDPs".to_owned(), StatValue::Count(emitted as i64)));
    summary.sort_by(|(a, _), (b, _)| a.cmp(b));
    for part in parts {
        let index = ("queryIndex".to_owned(), StatValue::Count(part.index as i64));
        let numbers = iter::once(index).chain(numbers(&part.stages)).collect();
        summary.push((format!("queryIdx_{:02}", part.index), StatValue::Part(numbers)));
    }
    summary
}
