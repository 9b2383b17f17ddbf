//! Finds the tree that a request names, and maps the errors of requests for trees.

use tsd_engine::{Tree, TreeId};
use tsd_meta::TreeError;
use tsd_protocol::ApiError;

use crate::{
    failure_mapping::{meta_api_error, storage_api_error, uid_api_error},
    http::{error::HttpError, request::HttpRequest},
};

/// Returns the tree with this number, or a 404.
pub(super) async fn existing(request: &HttpRequest<'_>, number: i64) -> Result<Tree, HttpError> {
    let id = valid_id(number)?;
    let tree = request.state.engine.trees().get(id).await.map_err(to_api_error)?;
    Ok(tree.ok_or_else(|| not_found(number))?)
}

pub(super) fn valid_id(number: i64) -> Result<TreeId, ApiError> {
    TreeId::from_number(number).ok_or_else(|| ApiError::wrapped(400, "Invalid Tree ID"))
}

pub(super) fn not_found(number: i64) -> ApiError {
    ApiError::new(404, format!("Unable to locate tree: {number}"))
}

pub(super) fn unsupported_method() -> HttpError {
    ApiError::new(400, "Unsupported HTTP request method").into()
}

pub(super) fn to_api_error(error: TreeError) -> ApiError {
    match error {
        TreeError::NoName
        | TreeError::NoIdLeft
        | TreeError::InvalidLevel
        | TreeError::InvalidOrder
        | TreeError::Rule(_)
        | TreeError::Build(_) => ApiError::wrapped(400, error.to_string()),
        TreeError::TooMany { what, most } => ApiError::too_many(what, most),
        TreeError::Contended => {
            ApiError::new(500, "Unable to save changes to the tree").with_details(error.to_string())
        }
        TreeError::Uid(error) => uid_api_error(&error),
        TreeError::Storage(error) => storage_api_error(&error),
        TreeError::Meta(error) => meta_api_error(&error, "meta object"),
        TreeError::Unreadable(_) => ApiError::internal(error.to_string()),
    }
}
