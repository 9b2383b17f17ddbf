//! `/api/query/last`: the newest points of series.

use hyper::Method;
use tsd_engine::{LastPoint, LastQuery, LastSeries};
use tsd_protocol::{
    ApiError, LastRequest, LastShown, LastWanted, parse_last_body, parse_last_uri,
    render_last_points,
};

use super::{control_by_uri, pieces, told};
use crate::http::{reply::Reply, routes::upper_hex, service::Asked};

/// Answers a request for newest points.
pub(super) async fn last(asked: &Asked<'_>) -> Result<Reply, ApiError> {
    let LastRequest { series, resolve, back_scan } = if asked.method == Method::POST {
        parse_last_body(asked.body.text()?)?
    } else {
        parse_last_uri(&asked.query)?
    };
    let series = series.into_iter().map(|wanted| match wanted {
        LastWanted::Names { metric, tags } => LastSeries::Metric { metric, tags },
        LastWanted::Tsuid(bytes) => LastSeries::Tsuid(bytes),
    });
    let query = LastQuery {
        series: series.collect(),
        // A metric with a negative number is asked as with none.
        back_scan_hours: u32::try_from(back_scan.max(0)).unwrap_or(u32::MAX),
        resolve,
    };
    let found = asked.shared.engine.last_points(query, control_by_uri(asked)).await;
    let (points, guard) = found.map_err(|failure| told(failure, None))?;
    let shown: Vec<LastShown> = points.into_iter().map(shown).collect();
    Ok(pieces::whole(|| render_last_points(&shown), guard))
}

fn shown(point: LastPoint) -> LastShown {
    LastShown {
        names: point.names,
        timestamp_ms: point.timestamp_ms,
        value: point.value,
        tsuid: upper_hex(&point.tsuid),
    }
}
