//! `/api/cluster` and its sub-paths.
//!
//! - GET `/api/cluster` lists the nodes with their reports and slots.
//! - POST `/api/cluster/flush` flushes all held rows of all nodes, and responds when the flushes are complete.
//! - `/api/cluster/queries` lists and cancels the queries of all nodes.

mod queries;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tsd_protocol::ApiError;

use super::cluster_drain;
use crate::{
    ClusterNode, ClusterStatus, FlushedNode, HotSlotDetails, NodeSlots, SlotSummary,
    http::{
        error::HttpError,
        request::HttpRequest,
        response::{ContentType, HttpResponse},
    },
};

pub(super) async fn cluster(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    match request.path.sub_path.to_ascii_lowercase().as_str() {
        "" => {
            request.allow(&[Method::GET])?;
            let status = request.cluster()?.status().await;
            Ok(HttpResponse::json(status_json(&status).to_string()))
        }
        "flush" => {
            request.allow(&[Method::POST])?;
            let flushed = request.cluster()?.flush().await;
            let failed = flushed.iter().any(|node| node.error.is_some());
            let status = if failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
            let body = flush_json(&flushed).to_string();
            Ok(HttpResponse::new(status, ContentType::Json, body))
        }
        "queries" => queries::queries(request, request.cluster()?).await,
        "drain" => cluster_drain::drain(request).await,
        _ => Err(ApiError::endpoint_not_found().into()),
    }
}

fn status_json(status: &ClusterStatus) -> Value {
    let ClusterStatus { nodes, slots } = status;
    let silent: Vec<&str> =
        nodes.iter().filter(|node| node.report.is_err()).map(|node| &*node.name).collect();
    json!({
        "nodes": nodes.iter().map(node_json).collect::<Vec<_>>(),
        "silent": silent,
        "slots": summary_json(slots),
    })
}

fn summary_json(slots: &SlotSummary) -> Value {
    let SlotSummary { generation, moving, without_owner } = slots;
    json!({ "generation": generation, "moving": moving, "withoutOwner": without_owner })
}

fn slots_json(slots: &NodeSlots) -> Value {
    let NodeSlots { owned, moving_in, moving_out } = slots;
    json!({ "owned": owned, "movingIn": moving_in, "movingOut": moving_out })
}

fn node_json(node: &ClusterNode) -> Value {
    let details = node.report.as_ref().ok();
    json!({
        "name": node.name,
        "address": node.address,
        "state": node.state,
        "incarnation": node.incarnation,
        "this": node.is_this,
        "heartbeatAgeMs": node.heartbeat_age_ms,
        "logBytes": node.log_bytes,
        "slots": slots_json(&node.slots),
        "heldRows": details.map(|details| details.held_rows),
        "heldBytes": details.map(|details| details.held_bytes),
        "version": details.map(|details| &details.version),
        "clockAheadMs": details.map(|details| details.clock_ahead_ms),
        "problems": details.map(|details| &details.problems),
        "hotSlots": details.map(|details| details.hot_slots.iter().map(hot_slot_json).collect::<Vec<_>>()),
        "error": node.report.as_ref().err().map(ToString::to_string),
    })
}

fn hot_slot_json(of: &HotSlotDetails) -> Value {
    let HotSlotDetails { slot, percent, name } = of;
    json!({ "slot": slot, "percent": percent, "name": name })
}

fn flush_json(nodes: &[FlushedNode]) -> Value {
    let node = |node: &FlushedNode| {
        json!({
            "name": node.name,
            "flushed": node.error.is_none(),
            "error": node.error,
        })
    };
    json!({ "nodes": nodes.iter().map(node).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeDetails, SilentNodeError};

    #[test]
    fn silent_nodes_are_named() {
        let node = |name: &str, report| ClusterNode {
            name: name.to_owned(),
            address: "h:4243".to_owned(),
            state: "serving",
            incarnation: 7,
            is_this: false,
            heartbeat_age_ms: 900,
            log_bytes: 10,
            slots: NodeSlots { owned: 5, moving_in: 4, moving_out: 1 },
            report,
        };
        let hot_slots =
            vec![HotSlotDetails { slot: 7, percent: 40, name: Some("web1".to_owned()) }];
        let details =
            NodeDetails { held_rows: 3, clock_ahead_ms: -2, hot_slots, ..NodeDetails::default() };
        let silent = SilentNodeError("no answer in time".to_owned());
        let nodes = [node("a", Ok(details)), node("b", Err(silent))];
        let slots = SlotSummary { generation: 9, moving: 5, without_owner: 2 };
        let status = status_json(&ClusterStatus { nodes: nodes.into(), slots });
        let expected = json!({ "generation": 9, "moving": 5, "withoutOwner": 2 });
        assert_eq!(status.get("slots"), Some(&expected));
        assert_eq!(status.get("silent"), Some(&json!(["b"])));
        let field = |at: usize, name| status.get("nodes")?.get(at)?.get(name).cloned();
        assert_eq!(field(0, "heldRows"), Some(json!(3)));
        assert_eq!(field(0, "clockAheadMs"), Some(json!(-2)));
        let hot = json!([{ "slot": 7, "percent": 40, "name": "web1" }]);
        assert_eq!((field(0, "hotSlots"), field(1, "hotSlots")), (Some(hot), Some(Value::Null)));
        let slots = json!({ "owned": 5, "movingIn": 4, "movingOut": 1 });
        assert_eq!(field(1, "slots"), Some(slots));
        assert_eq!(field(1, "heldRows"), Some(Value::Null));
        assert_eq!(field(1, "error"), Some(json!("no answer in time")));
    }
}
