//! `/api/query/gexp`: functions over series.

use hyper::Method;
use tsd_engine::{GexpAnswer, GexpQuery, GexpSeries};
use tsd_protocol::{
    ApiError, QueryAnswerWriter, SeriesAnswer, Summary, parse_gexp_body, parse_gexp_uri,
    query_error, render_query,
};

use super::{
    answer::fills_with_null,
    complete, control, layout,
    numbers::summary,
    pieces::{self, Writing},
    told,
};
use crate::http::{reply::Reply, routes::upper_hex, service::Asked};

/// Answers a request of functions, from a URI or from a body with `exp`.
pub(super) async fn gexp(asked: &Asked<'_>) -> Result<Reply, ApiError> {
    let (mut raw, mut texts) = if asked.method == Method::POST {
        parse_gexp_body(asked.body.text()?)?
    } else {
        (parse_gexp_uri(&asked.query)?, Vec::new())
    };
    texts.extend(asked.query.all("exp").map(str::to_owned));
    complete(asked, &mut raw)?;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let request = GexpQuery::new(raw.clone(), &texts, &asked.shared.clock())
        .map_err(|e| query_error(&e, Some(&raw)))?;
    let query = request.query.clone();
    let engine = &asked.shared.engine;
    let globals = if query.global_annotations && !query.no_annotations {
        let notes = engine.global_annotations((query.start_ms, query.end_ms)).await;
        notes.map_err(|error| told(error.into(), None))?
    } else {
        Vec::new()
    };
    let globals = (!globals.is_empty()).then_some(globals);
    let control = control(asked, render_query(&raw, &query, &texts).into());
    let answer = engine.query_gexp(request, control).await;
    let GexpAnswer { series, mut stages, guard } =
        answer.map_err(|failure| told(failure, Some(&raw)))?;
    let writing = Writing::default();
    let show_tsuids = query.show_tsuids;
    let nan_as_null = query.sub_queries.first().is_some_and(fills_with_null);
    let series =
        series.into_iter().map(move |GexpSeries { series, lists_annotations }| SeriesAnswer {
            metric: series.metric,
            tags: series.tags,
            aggregate_tags: series.aggregate_tags,
            tsuids: show_tsuids
                .then(|| series.tsuids.iter().map(|tsuid| upper_hex(tsuid)).collect()),
            annotations: if lists_annotations { Some(Vec::new()) } else { series.annotations },
            global_annotations: globals.clone(),
            points: series.points,
            nan_as_null,
            ..SeriesAnswer::default()
        });
    let summary: Option<Summary> = query.show_summary.then(|| {
        let writing = writing.clone();
        let summary: Summary = Box::new(move || {
            stages.serialization = writing.time();
            summary(&stages)
        });
        summary
    });
    let mut writer = QueryAnswerWriter::new(layout(asked, &query), series, summary);
    let write = move |out: &mut Vec<u8>, enough| writer.write(out, enough);
    Ok(pieces::reply(write, writing, guard))
}
