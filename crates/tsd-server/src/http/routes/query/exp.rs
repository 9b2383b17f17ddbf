//! `/api/query/exp`: expressions over metrics.

use std::sync::Arc;

use tsd_protocol::{
    ApiError, ExpAnswerWriter, listed_exp_query, parse_exp_body, query_error, render_exp_query,
};

use super::{
    control,
    pieces::{self, Writing},
    told,
};
use crate::http::{reply::Reply, service::Asked};

/// Answers a request of expressions. The body says it all, whatever the method.
pub(super) async fn exp(asked: &Asked<'_>) -> Result<Reply, ApiError> {
    let text = asked.body.text().map_err(|error| ApiError { status: 500, ..error })?;
    let mut raw = parse_exp_body(text)?;
    if let Some(time) = &mut raw.time
        && time.timezone.is_none()
    {
        time.timezone = asked.query.get("timezone").map(str::to_owned);
    }
    let query = raw.validate(&asked.shared.clock()).map_err(|e| query_error(&e, None))?;
    let echo: Arc<str> = render_exp_query(&raw).into();
    let control = control(asked, listed_exp_query(&echo));
    let (answer, guard) = asked
        .shared
        .engine
        .query_exp(query, control)
        .await
        .map_err(|failure| told(failure, None))?;
    let mut writer = ExpAnswerWriter::new(answer, echo);
    let write = move |out: &mut Vec<u8>, enough| writer.write(out, enough);
    Ok(pieces::reply(write, Writing::default(), guard))
}
