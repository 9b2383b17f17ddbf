//! POST `/api/cluster/drain` releases all slots of the daemon, and responds when the drain is complete.
//!
//! From the start of the drain, the daemon is not ready. Afterwards it keeps running and forwards all
//! writes. If the drain fails or the client disconnects, the daemon takes its share of the slots again.

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    DrainedNode,
    http::{
        error::HttpError,
        request::HttpRequest,
        response::{ContentType, HttpResponse},
    },
};

pub(super) async fn drain(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::POST])?;
    let drained = request.cluster()?.drain().await;
    let status = match drained.error {
        None => StatusCode::OK,
        Some(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let body = drain_json(&drained).to_string();
    Ok(HttpResponse::new(status, ContentType::Json, body))
}

fn drain_json(node: &DrainedNode) -> Value {
    json!({
        "drained": node.error.is_none(),
        "slots": node.slots,
        "left": node.left,
        "error": node.error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_that_stay_are_explained() {
        let node = DrainedNode { slots: 3, left: 1, error: Some("late".to_owned()) };
        let expected = json!({ "drained": false, "slots": 3, "left": 1, "error": "late" });
        assert_eq!(drain_json(&node), expected);
        assert_eq!(drain_json(&DrainedNode::default()).get("drained"), Some(&json!(true)));
    }
}
