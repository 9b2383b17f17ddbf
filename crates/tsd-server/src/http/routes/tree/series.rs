//! `/api/tree/test`, `/api/tree/collisions` and `/api/tree/notmatched`: series and the rules of a tree.

use hyper::Method;
use tsd_meta::{TestedSeries, TreeFailureKind};
use tsd_model::{from_hex, java_byte_list};
use tsd_protocol::{
    ApiError, ListedLeaf, TestedPath, TreeSeriesRequest, TreeTestResult, TreeTestWriter,
    parse_tree_series_body, parse_tree_series_uri, render_series_meta, render_tree_failures,
};

use super::requested_tree::{existing, to_api_error, unsupported_method};
use crate::http::{error::HttpError, request::HttpRequest, response::HttpResponse};

/// Maximum bytes of a response to a test.
const MAX_TEST_BYTES: usize = 32 << 20;

/// Applies the rules of a tree to stored series.
pub(super) async fn test(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let TreeSeriesRequest { tree_id, tsuids } = read_series(request)?;
    let tree = existing(request, tree_id).await?;
    if tsuids.is_empty() {
        return Err(ApiError::new(400, "Missing or empty TSUID list").into());
    }
    check_method(request)?;
    let trees = request.state.engine.trees();
    let tester = trees.tester(&tree).map_err(to_api_error)?;
    let mut writer = TreeTestWriter::new(tree.id);
    for text in TreeTestWriter::order(tsuids) {
        let tested = tester.test(&tsuid(&text)?).await.map_err(to_api_error)?;
        writer.add(&text, &test_result(&text, tested));
        if writer.size() > MAX_TEST_BYTES {
            return Err(ApiError::too_many("bytes of a test", MAX_TEST_BYTES).into());
        }
    }
    Ok(HttpResponse::json(writer.finish()))
}

/// Lists the series that are not in a tree, for one reason.
pub(super) async fn failures(
    request: &HttpRequest<'_>,
    kind: TreeFailureKind,
) -> Result<HttpResponse, HttpError> {
    let TreeSeriesRequest { tree_id, tsuids } = read_series(request)?;
    let tree = existing(request, tree_id).await?;
    check_method(request)?;
    let tsuids = tsuids.iter().map(|text| tsuid(text)).collect::<Result<Vec<_>, _>>()?;
    let found = request.state.engine.trees().failures(tree.id, kind, &tsuids).await;
    Ok(HttpResponse::json(render_tree_failures(found.map_err(to_api_error)?)))
}

fn read_series(request: &HttpRequest<'_>) -> Result<TreeSeriesRequest, HttpError> {
    if request.body.bytes().is_empty() {
        return Ok(parse_tree_series_uri(&request.query)?);
    }
    Ok(parse_tree_series_body(request.body.text()?)?)
}

fn check_method(request: &HttpRequest<'_>) -> Result<(), HttpError> {
    match request.api_method()? {
        Method::GET | Method::POST | Method::PUT => Ok(()),
        _ => Err(unsupported_method()),
    }
}

/// Parses a TSUID. Does not check its length: a wrong length matches no series.
fn tsuid(text: &str) -> Result<Vec<u8>, ApiError> {
    if text.is_empty() {
        return Err(ApiError::wrapped(400, "UID was empty"));
    }
    let padded = if text.len() % 2 == 1 { format!("0{text}") } else { text.to_owned() };
    from_hex(padded.as_bytes())
        .ok_or_else(|| ApiError::wrapped(400, format!("\"{text}\" is not a hexadecimal TSUID")))
}

fn test_result(tsuid: &str, tested: TestedSeries) -> TreeTestResult {
    let only =
        |message: String| TreeTestResult { messages: vec![message], ..TreeTestResult::default() };
    match tested {
        TestedSeries::NoMeta => only("Unable to locate TSUID meta data".to_owned()),
        TestedSeries::NoName { kind, uid } => {
            let uid = java_byte_list(&uid);
            only(format!("TSUID was missing a UID name: No such unique ID for '{kind}': {uid}"))
        }
        TestedSeries::Tested { meta, placement, messages, is_rejected } => {
            // A leaf of the root is shown although it is not stored.
            let is_shown = !is_rejected || placement.branches.is_empty();
            let leaf = placement.leaf.filter(|_| is_shown).map(|name| ListedLeaf {
                tsuid: tsuid.to_owned(),
                display_name: name,
                ..ListedLeaf::default()
            });
            let branches = if is_rejected { Vec::new() } else { placement.branches };
            TreeTestResult {
                meta: Some(render_series_meta(&meta)),
                messages,
                place: Some(TestedPath { branches, leaf }),
            }
        }
    }
}
