//! `/api/query`.
use crate::http::{error::HttpError, reply::Reply, service::Asked};
pub(super) async fn query(asked: Asked<'_>) -> Result<Reply, HttpError> {
    let _ = asked;
    Err(tsd_protocol::ApiError::endpoint_not_found().into())
}
