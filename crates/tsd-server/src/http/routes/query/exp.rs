//! `/api/query/exp`: expressions over metrics.

use std::sync::Arc;

use tsd_protocol::{
    ApiError, ExpResponseWriter, listed_exp_query, parse_exp_body, query_error, render_exp_query,
};

use super::super::{
    query_control::control,
    response_stream::{self, SerializationTimer},
};
use crate::{
    http::{request::HttpRequest, response::HttpResponse},
    query_failure_mapping::cause_of,
};

/// Handles a request with expressions. With any method, only the body counts.
pub(super) async fn exp(request: &HttpRequest<'_>) -> Result<HttpResponse, ApiError> {
    let text = request.body.text()?;
    let mut raw = parse_exp_body(text)?;
    if let Some(time) = &mut raw.time
        && time.timezone.is_none()
    {
        time.timezone = request.query.get("timezone").map(str::to_owned);
    }
    let query = raw.validate(&request.state.clock()).map_err(|e| query_error(&e, None))?;
    let echo: Arc<str> = render_exp_query(&raw).into();
    let control = control(request, listed_exp_query(&echo));
    let (result, guard) = request
        .state
        .engine
        .reads()
        .query_exp(query, control)
        .await
        .map_err(|failure| cause_of(&failure).query_error(None))?;
    let mut writer = ExpResponseWriter::new(result, echo);
    let write = move |out: &mut Vec<u8>, chunk_bytes| writer.write(out, chunk_bytes);
    Ok(response_stream::chunked(write, SerializationTimer::default(), guard))
}
