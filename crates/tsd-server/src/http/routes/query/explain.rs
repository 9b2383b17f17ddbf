//! Query plans: the tables and row ranges that a query would read.

use serde_json::{Value, json};
use tsd_engine::{ExplainedRead, ExplainedSubQuery, Query, RawQuery};
use tsd_protocol::ApiError;

use crate::{
    http::{request::HttpRequest, response::HttpResponse},
    query_failure_mapping::cause_of,
};

/// Responds with the plan of a query.
pub(super) async fn explain(
    request: &HttpRequest<'_>,
    raw: &RawQuery,
    query: &Query,
) -> Result<HttpResponse, ApiError> {
    let plans = request.state.engine.reads().explain(query, &request.rights()).await;
    let plans = plans.map_err(|failure| cause_of(&failure).query_error(Some(raw)))?;
    let plans: Vec<Value> = plans.iter().map(sub_query).collect();
    Ok(HttpResponse::json(json!({ "explain": plans }).to_string()))
}

fn sub_query(plan: &ExplainedSubQuery) -> Value {
    json!({
        "index": plan.index,
        "split": plan.split,
        "reads": plan.reads.iter().map(read).collect::<Vec<_>>(),
    })
}

fn read(read: &ExplainedRead) -> Value {
    let ranges = read
        .ranges
        .iter()
        .map(|range| json!({ "bucket": range.bucket, "start": range.start, "stop": range.stop }));
    json!({
        "table": read.table,
        "cells": read.cells,
        "startMs": read.range_ms.0,
        "endMs": read.range_ms.1,
        "firstRow": read.rows_secs.0,
        "stopRow": read.rows_secs.1,
        "ranges": ranges.collect::<Vec<_>>(),
        "pushedDown": read.pushed_down,
        "checkedAfterwards": read.checked_afterwards,
        "groupBy": read.group_by,
        "byKey": read.by_key,
        "bySeries": read.by_series,
        "summaries": {
            "mayServe": read.summaries.may_serve,
            "reason": read.summaries.reason,
            "mostDays": read.summaries.most_days,
            "mostHours": read.summaries.most_hours,
        },
        "estimatedRows": read.estimated_rows,
        "estimatedFrom": read.estimated_from,
        "estimatedBytes": read.estimated_bytes,
        "text": read.text,
    })
}
