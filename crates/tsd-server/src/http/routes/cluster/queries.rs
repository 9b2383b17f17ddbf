//! `/api/cluster/queries`: GET lists the running queries of all nodes; a DELETE with `id` cancels a query on
//! any node.

use hyper::Method;
use serde_json::{Value, json};
use tsd_protocol::ApiError;

use crate::{
    CancelQueryError, ClusterNodes, ClusterQueryId, NodeQueries, SilentNodeError,
    http::{error::HttpError, request::HttpRequest, response::HttpResponse},
};

pub(super) async fn queries(
    request: &HttpRequest<'_>,
    nodes: &dyn ClusterNodes,
) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::DELETE])?;
    if request.method == Method::DELETE {
        return Ok(cancel(request, nodes).await?);
    }
    let queries = nodes.queries().await;
    Ok(HttpResponse::json(list(&queries).to_string()))
}

async fn cancel(
    request: &HttpRequest<'_>,
    nodes: &dyn ClusterNodes,
) -> Result<HttpResponse, ApiError> {
    let id: ClusterQueryId = request.query.required("id")?.parse().map_err(|()| {
        ApiError::new(400, "Unable to parse 'id'; expected a value such as 12-345")
    })?;
    match nodes.cancel_query(id).await {
        Ok(node) => {
            tracing::info!(peer = %request.peer, %id, node, "a query was cancelled");
            let body = json!({ "message": "Query cancelled", "id": id.to_string(), "node": node });
            Ok(HttpResponse::json(body.to_string()))
        }
        Err(CancelQueryError::NotRunning) => {
            Err(ApiError::new(404, format!("No query with the id {id} is running")))
        }
        Err(CancelQueryError::Silent { node, reason }) => {
            Err(ApiError::new(503, format!("Node {node} does not answer: {reason}")))
        }
    }
}

/// Why the queries of a node cannot be listed.
#[derive(Debug, thiserror::Error)]
enum NodeQueriesError {
    #[error(transparent)]
    Silent(#[from] SilentNodeError),
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
}

fn list(nodes: &[NodeQueries]) -> Value {
    let of_node = |node: &NodeQueries| {
        let (running, omitted, error) = match running_of(node) {
            Ok((running, omitted)) => (running, omitted, None),
            Err(error) => (Vec::new(), 0, Some(error.to_string())),
        };
        json!({
            "name": node.name,
            "this": node.is_this,
            "running": running,
            "omitted": omitted,
            "error": error,
        })
    };
    let silent: Vec<&str> =
        nodes.iter().filter(|node| node.running.is_err()).map(|node| &*node.name).collect();
    json!({ "nodes": nodes.iter().map(of_node).collect::<Vec<_>>(), "silent": silent })
}

/// Returns the queries of a node, each with its cluster-wide id, and the number of omitted queries.
fn running_of(node: &NodeQueries) -> Result<(Vec<Value>, u64), NodeQueriesError> {
    let text = node.running.as_ref().map_err(SilentNodeError::clone)?;
    let mut found: Value = serde_json::from_str(text)?;
    let running = found.get_mut("running").and_then(Value::as_array_mut);
    let mut running = running.map(std::mem::take).unwrap_or_default();
    for query in &mut running {
        let number = query.get("id").and_then(Value::as_u64).unwrap_or_default();
        let id = ClusterQueryId { incarnation: node.incarnation, query: number };
        if let Some(fields) = query.as_object_mut() {
            fields.insert("clusterId".to_owned(), id.to_string().into());
        }
    }
    Ok((running, found.get("omitted").and_then(Value::as_u64).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_have_a_number_in_the_cluster_and_silent_nodes_are_named() {
        let node = |name: &str, incarnation, running| NodeQueries {
            name: name.to_owned(),
            incarnation,
            is_this: incarnation == 3,
            running,
        };
        let running = r#"{"running":[{"id":7,"stage":"queued"}],"omitted":2}"#.to_owned();
        let nodes = [
            node("a", 3, Ok(running)),
            node("b", 4, Err(SilentNodeError("no answer in time".to_owned()))),
            node("c", 5, Ok("{".to_owned())),
        ];
        let list = list(&nodes);
        assert_eq!(list.get("silent"), Some(&json!(["b"])));
        let field = |at: usize, name| list.get("nodes")?.get(at)?.get(name).cloned();
        let expected = json!([{ "id": 7, "stage": "queued", "clusterId": "3-7" }]);
        assert_eq!((field(0, "running"), field(0, "omitted")), (Some(expected), Some(json!(2))));
        assert_eq!(field(1, "error"), Some(json!("no answer in time")));
        assert!(field(2, "error").is_some_and(|error| error.is_string()));
    }

    #[test]
    fn a_number_in_the_cluster_is_parsed_as_it_is_rendered() {
        let id = ClusterQueryId { incarnation: 12, query: 345 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in ["", "12", "12-", "-1", "a-1", "1-2-3"] {
            assert_eq!(bad.parse::<ClusterQueryId>(), Err(()), "{bad}");
        }
    }
}
