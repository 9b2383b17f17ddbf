//! Bodies and parameters of HTTP requests, and bodies of responses.

mod annotation;
mod api_error;
mod body_fields;
mod exp_echo;
mod exp_request;
mod exp_response;
mod extra_fields;
mod graph_request;
mod graph_response;
mod histogram_batch;
mod last;
mod list_response;
mod meta_object;
mod parse_memory;
mod point_fields;
mod put_batch;
mod put_error;
mod put_response;
mod query_csv;
mod query_echo;
mod query_error;
mod query_failure;
mod query_list;
mod query_request;
mod query_response;
mod query_string;
mod rollup_batch;
mod search;
mod sub_query_echo;
mod tag_text;
mod tree;
mod tree_response;
mod uid_names;

pub use annotation::{
    AnnotationRange, parse_annotation_body, parse_annotation_range_body,
    parse_annotation_range_uri, parse_annotation_uri, parse_annotations_body, render_annotation,
    render_annotations,
};
pub use api_error::{ApiError, LegacyFormat};
pub use exp_echo::render_exp_query;
pub use exp_request::parse_exp_body;
pub use exp_response::ExpResponseWriter;
pub use graph_request::{GraphForm, GraphQuery, GraphRequest, parse_graph_request};
pub use graph_response::{
    GraphSummary, GraphTextSeries, GraphTextWriter, count_graph_points, graph_label, graph_redirect,
};
pub use histogram_batch::{HistogramBatch, HttpHistogram};
pub use last::{
    LastPointResult, LastRequest, LastSelector, last_points_response, parse_last_body,
    parse_last_uri,
};
pub use list_response::ListResponseWriter;
pub use meta_object::{
    TsMetaRequest, UidMetaRequest, parse_series_text, parse_ts_meta_body, parse_ts_meta_uri,
    parse_uid_meta_body, parse_uid_meta_uri, parse_uid_uri, render_series_meta, render_uid_meta,
    series_metas_response,
};
pub use parse_memory::{BodyShape, ParseMemory, ParsedKind, UnlimitedMemory};
pub use put_batch::{CommonTag, HttpPoint, NAME_SEPARATOR, PutBatch, RejectedPoint};
pub use put_error::{PutBodyError, PutPointError};
pub use put_response::{PutOptions, PutOutcome, PutResponse};
pub use query_csv::{CsvColumns, QueryCsvWriter, write_csv_row};
pub use query_echo::render_query;
pub use query_error::query_error;
pub use query_failure::QueryFailureCause;
pub use query_list::{
    ListedClient, ListedCompleted, ListedOutcome, ListedRunning, listed_exp_query,
    render_query_list, render_running_list,
};
pub use query_request::{parse_gexp_body, parse_gexp_uri, parse_query_body, parse_query_uri};
pub use query_response::{QueryResponseWriter, ResponseLayout, SeriesResult, StatValue, Summary};
pub use query_string::{QueryString, QueryStringError};
pub use rollup_batch::{HttpRollup, RollupBatch};
pub use search::{
    LookupRequest, LookupResult, SearchHit, SearchType, lookup_response, parse_lookup_body,
    parse_lookup_uri, parse_search_body, parse_search_uri, search_disabled, search_response,
    search_text, unnamed_series_text,
};
pub use sub_query_echo::render_sub_query;
pub use tree::{
    TreeRequest, TreeSeriesRequest, parse_branch_uri, parse_tree_body, parse_tree_id,
    parse_tree_rule_body, parse_tree_rule_uri, parse_tree_rules_body, parse_tree_series_body,
    parse_tree_series_uri, parse_tree_uri,
};
pub use tree_response::{
    ListedLeaf, TestedPath, TreeTestResult, TreeTestWriter, render_branch, render_tree,
    render_tree_failures, render_tree_rule, render_trees,
};
pub use uid_names::{parse_uid_assign_body, parse_uid_rename_body};
