//! `/api/tree` and its sub-paths: trees, their rules and branches, tests of rules, and failures.

mod requested_tree;
mod rules;
mod series;

use hyper::{Method, StatusCode};
use tsd_meta::{BranchContents, TreeEditOutcome, TreeFailureKind};
use tsd_protocol::{
    ApiError, ListedLeaf, TreeRequest, parse_branch_uri, parse_tree_body, parse_tree_uri,
    render_branch, render_tree, render_trees,
};

use self::requested_tree::{existing, not_found, to_api_error, unsupported_method, valid_id};
use crate::http::{error::HttpError, request::HttpRequest, response::HttpResponse};

/// Dispatches a request to its sub-path.
pub(super) async fn tree(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    match request.path.sub_path.to_ascii_lowercase().as_str() {
        "" => one_or_all(request).await,
        "branch" => branch(request).await,
        "rule" => rules::rule(request).await,
        "rules" => rules::rules(request).await,
        "test" => series::test(request).await,
        "collisions" => series::failures(request, TreeFailureKind::Collision).await,
        "notmatched" => series::failures(request, TreeFailureKind::NotMatched).await,
        _ => Err(ApiError::new(404, "This endpoint is not supported").into()),
    }
}

async fn one_or_all(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let tree_request = if request.body.bytes().is_empty() {
        parse_tree_uri(&request.query)?
    } else {
        parse_tree_body(request.body.text()?)?
    };
    match request.api_method()? {
        Method::GET => get(request, &tree_request).await,
        method @ (Method::POST | Method::PUT) => {
            edit(request, &tree_request, method == Method::PUT).await
        }
        Method::DELETE => delete(request, &tree_request).await,
        _ => Err(unsupported_method()),
    }
}

async fn get(
    request: &HttpRequest<'_>,
    tree_request: &TreeRequest,
) -> Result<HttpResponse, HttpError> {
    if tree_request.tree_id == 0 {
        let trees = request.state.engine.trees().all().await.map_err(to_api_error)?;
        return Ok(HttpResponse::json(render_trees(&trees)));
    }
    let tree = existing(request, tree_request.tree_id).await?;
    Ok(HttpResponse::json(render_tree(&tree)))
}

/// Edits a tree, or creates one if the request has no number.
async fn edit(
    request: &HttpRequest<'_>,
    tree_request: &TreeRequest,
    replace: bool,
) -> Result<HttpResponse, HttpError> {
    let trees = request.state.engine.trees();
    if tree_request.tree_id < 1 {
        // As in OpenTSDB, a tree that was created from a body has no creation time.
        let is_by_uri = request.body.bytes().is_empty();
        let created = if is_by_uri { request.state.clock().now_ms / 1_000 } else { 0 };
        let tree = trees.create(&tree_request.edit, created).await.map_err(to_api_error)?;
        return Ok(HttpResponse::json(render_tree(&tree)));
    }
    let id = valid_id(tree_request.tree_id)?;
    match trees.edit(id, &tree_request.edit, replace).await.map_err(to_api_error)? {
        TreeEditOutcome::Stored(tree) => Ok(HttpResponse::json(render_tree(&tree))),
        TreeEditOutcome::Unchanged => Ok(HttpResponse::status_only(StatusCode::NOT_MODIFIED)),
        TreeEditOutcome::NotFound => Err(not_found(tree_request.tree_id).into()),
    }
}

async fn delete(
    request: &HttpRequest<'_>,
    tree_request: &TreeRequest,
) -> Result<HttpResponse, HttpError> {
    let tree = existing(request, tree_request.tree_id).await?;
    let deleted = request.state.engine.trees().delete(tree.id, tree_request.with_definition).await;
    deleted.map_err(to_api_error)?;
    Ok(HttpResponse::status_only(StatusCode::NO_CONTENT))
}

async fn branch(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    if request.api_method()? != Method::GET {
        return Err(unsupported_method());
    }
    let row = parse_branch_uri(&request.query)?;
    let found = request.state.engine.trees().branch(&row).await.map_err(to_api_error)?;
    let Some(BranchContents { tree, branch, leaves, children }) = found else {
        let tree = row.iter().take(2).fold(0, |id, byte| id << 8 | u32::from(*byte));
        let hex = tsd_model::to_hex(&row);
        let text = format!("Unable to locate branch '{hex}' for tree '{tree}'");
        return Err(ApiError::new(404, text).into());
    };
    let leaves = leaves.into_iter().map(|named| ListedLeaf {
        metric: named.metric,
        tags: Some(named.tags),
        tsuid: named.leaf.tsuid,
        display_name: named.leaf.display_name,
    });
    Ok(HttpResponse::json(render_branch(tree, &branch, leaves.collect(), children)))
}
