//! `/api/tree/rule` and `/api/tree/rules`: one rule, or all rules of a tree.

use hyper::{Method, StatusCode};
use tsd_engine::TreeRuleEdit;
use tsd_meta::RuleEditOutcome;
use tsd_model::TreeRule;
use tsd_protocol::{
    ApiError, parse_tree_id, parse_tree_rule_body, parse_tree_rule_uri, parse_tree_rules_body,
    render_tree_rule,
};

use super::requested_tree::{existing, not_found, to_api_error, unsupported_method, valid_id};
use crate::http::{error::HttpError, request::HttpRequest, response::HttpResponse};

pub(super) async fn rule(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let edit = if request.body.bytes().is_empty() {
        parse_tree_rule_uri(&request.query)?
    } else {
        parse_tree_rule_body(request.body.text()?)?
    };
    match request.api_method()? {
        Method::GET => {
            let rule = stored_rule(request, &edit).await?;
            Ok(HttpResponse::json(render_tree_rule(&rule)))
        }
        method @ (Method::POST | Method::PUT) => {
            let id = valid_id(edit.tree_id)?;
            let trees = request.state.engine.trees();
            let edited = trees.edit_rule(id, &edit, method == Method::PUT).await;
            match edited.map_err(to_api_error)? {
                RuleEditOutcome::Stored(rule) => Ok(HttpResponse::json(render_tree_rule(&rule))),
                RuleEditOutcome::Unchanged => {
                    Ok(HttpResponse::status_only(StatusCode::NOT_MODIFIED))
                }
                RuleEditOutcome::NotFound => Err(not_found(edit.tree_id).into()),
            }
        }
        Method::DELETE => {
            let rule = stored_rule(request, &edit).await?;
            let place = (u32::try_from(rule.level), u32::try_from(rule.order));
            if let (Ok(level), Ok(order)) = place {
                let id = valid_id(edit.tree_id)?;
                let deleted = request.state.engine.trees().delete_rule(id, level, order).await;
                deleted.map_err(to_api_error)?;
            }
            Ok(HttpResponse::status_only(StatusCode::NO_CONTENT))
        }
        _ => Err(unsupported_method()),
    }
}

/// Returns the stored rule with the level and order of `edit`, or a 404.
async fn stored_rule(
    request: &HttpRequest<'_>,
    edit: &TreeRuleEdit,
) -> Result<TreeRule, HttpError> {
    let mut tree = existing(request, edit.tree_id).await?;
    let place = u32::try_from(edit.level).ok().zip(u32::try_from(edit.order).ok());
    let rule = place.and_then(|place| tree.rules.remove(&place));
    Ok(rule.ok_or_else(|| ApiError::new(404, format!("Unable to locate rule: {edit}")))?)
}

pub(super) async fn rules(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let (tree_id, edits) = if request.body.bytes().is_empty() {
        (parse_tree_id(&request.query)?, Vec::new())
    } else {
        parse_tree_rules_body(request.body.text()?)?
    };
    let tree = existing(request, tree_id).await?;
    let trees = request.state.engine.trees();
    let found = match request.api_method()? {
        Method::POST | Method::PUT if edits.is_empty() => {
            return Err(ApiError::new(400, "Missing tree rules").into());
        }
        Method::POST => trees.edit_rules(tree.id, &edits, false).await,
        // A PUT deletes the rules that are not listed.
        Method::PUT => trees.edit_rules(tree.id, &edits, true).await,
        Method::DELETE => trees.delete_rules(tree.id).await,
        _ => return Err(unsupported_method()),
    };
    if found.map_err(to_api_error)? {
        Ok(HttpResponse::status_only(StatusCode::NO_CONTENT))
    } else {
        Err(not_found(tree_id).into())
    }
}
