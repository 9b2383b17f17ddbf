//! `/api/serializers`: the supported requests and responses, in the format of OpenTSDB 2.3.
//!
//! Later versions document the endpoint but do not serve it. Clients use it to learn that the daemon
//! supports JSON, and for which requests.

use hyper::Method;
use serde_json::json;

use crate::http::{error::HttpError, request::HttpRequest, response::HttpResponse};

/// Requests with parsed bodies, under OpenTSDB's names.
const PARSERS: [&str; 16] = [
    "PutV1",
    "SuggestV1",
    "UidAssignV1",
    "UidRenameV1",
    "SearchQueryV1",
    "QueryV1",
    "LastPointQueryV1",
    "UidMetaV1",
    "TSMetaV1",
    "TreeV1",
    "TreeRuleV1",
    "TreeRulesV1",
    "TreeTSUIDsListV1",
    "AnnotationV1",
    "AnnotationsV1",
    "AnnotationBulkDeleteV1",
];

/// Responses, under OpenTSDB's names.
const FORMATTERS: [&str; 33] = [
    "PutV1",
    "SuggestV1",
    "SerializersV1",
    "AggregatorsV1",
    "VersionV1",
    "DropCachesV1",
    "UidAssignV1",
    "UidRenameV1",
    "QueryV1",
    "QueryAsyncV1",
    "LastPointQueryV1",
    "UidMetaV1",
    "TSMetaV1",
    "TSMetaListV1",
    "BranchV1",
    "TreeV1",
    "TreesV1",
    "TreeRuleV1",
    "TreeCollisionNotMatchedV1",
    "TreeTestV1",
    "AnnotationV1",
    "AnnotationsV1",
    "AnnotationBulkDeleteV1",
    "StatsV1",
    "ThreadStatsV1",
    "RegionStatsV1",
    "JVMStatsV1",
    "QueryStatsV1",
    "SearchResultsV1",
    "ConfigV1",
    "FilterConfigV1",
    "NotFoundV1",
    "ErrorV1",
];

/// Lists the serializers.
pub(super) fn serializers(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET, Method::POST])?;
    let json = json!([{
        "request_content_type": "application/json",
        "formatters": FORMATTERS[..],
        "response_content_type": "application/json; charset=UTF-8",
        "parsers": PARSERS[..],
        "serializer": "json",
        "class": "net.opentsdb.tsd.HttpJsonSerializer",
    }]);
    Ok(HttpResponse::json(json.to_string()))
}
