//! Parses and renders OpenTSDB's telnet lines, HTTP bodies and responses, without sockets and
//! storage.
//!
//! [`PutLine`] (telnet) and [`PutBatch`] (HTTP) parse points. Both keep the series as raw text, which
//! is a cache key, and parse it only on request. [`parse_query_body`] and [`parse_query_uri`] parse
//! queries; [`QueryResponseWriter`] writes their results. `Display` of the error types renders
//! OpenTSDB's error texts.

mod build_info;
mod content_coding;
mod credentials;
mod health;
mod histogram_value;
mod http;
mod java_map;
mod json;
mod latin1;
mod point_error;
mod put_error_kind;
mod rollup_rules;
mod tag_pairs;
mod telnet;

pub use build_info::BuildInfo;
pub use content_coding::{Compressor, Decompressor, Encoding, inflate_body};
pub use credentials::{
    Credentials, CredentialsError, MAX_SECRET_BYTES, Secret, is_certificate_name, is_user_name,
    parse_authorization, parse_telnet_credentials,
};
pub use health::Health;
pub use histogram_value::{HistogramValue, HistogramValueError};
pub use http::{
    AnnotationRange, ApiError, BodyShape, CommonTag, CsvColumns, ExpResponseWriter, GraphForm,
    GraphQuery, GraphRequest, GraphSummary, GraphTextSeries, GraphTextWriter, HistogramBatch,
    HttpHistogram, HttpPoint, HttpRollup, LastPointResult, LastRequest, LastSelector, LegacyFormat,
    ListResponseWriter, ListedClient, ListedCompleted, ListedOutcome, ListedRunning, LookupRequest,
    LookupResult, NAME_SEPARATOR, ParseMemory, ParsedKind, PutBatch, PutBodyError, PutOptions,
    PutOutcome, PutPointError, PutResponse, QueryCsvWriter, QueryFailureCause, QueryResponseWriter,
    QueryString, QueryStringError, RejectedPoint, ResponseLayout, RollupBatch, SearchHit,
    SearchType, SeriesResult, StatValue, Summary, TsMetaRequest, UidMetaRequest, UnlimitedMemory,
    count_graph_points, graph_label, graph_redirect, last_points_response, listed_exp_query,
    lookup_response, parse_annotation_body, parse_annotation_range_body,
    parse_annotation_range_uri, parse_annotation_uri, parse_annotations_body, parse_exp_body,
    parse_gexp_body, parse_gexp_uri, parse_graph_request, parse_last_body, parse_last_uri,
    parse_lookup_body, parse_lookup_uri, parse_query_body, parse_query_uri, parse_search_body,
    parse_search_uri, parse_series_text, parse_ts_meta_body, parse_ts_meta_uri,
    parse_uid_assign_body, parse_uid_meta_body, parse_uid_meta_uri, parse_uid_rename_body,
    parse_uid_uri, query_error, render_annotation, render_annotations, render_exp_query,
    render_query, render_query_list, render_running_list, render_series_meta, render_sub_query,
    render_uid_meta, search_disabled, search_response, search_text, series_metas_response,
    unnamed_series_text, write_csv_row,
};
pub use http::{
    ListedLeaf, TestedPath, TreeRequest, TreeSeriesRequest, TreeTestResult, TreeTestWriter,
    parse_branch_uri, parse_tree_body, parse_tree_id, parse_tree_rule_body, parse_tree_rule_uri,
    parse_tree_rules_body, parse_tree_series_body, parse_tree_series_uri, parse_tree_uri,
    render_branch, render_tree, render_tree_failures, render_tree_rule, render_trees,
};
pub use json::{JsonError, JsonErrorKind, write_json_string};
pub use latin1::Latin1;
pub use point_error::{PointError, SeriesRules};
pub use put_error_kind::PutErrorKind;
pub use rollup_rules::{RollupError, RollupPlacement, RollupPoint, RollupRules, RollupSpec};
pub use tag_pairs::TagPairs;
pub use telnet::{
    AdminCommand, HistogramLine, HistogramLineError, InputLine, LineSplitter, PutLine,
    PutLineError, RollupLine, TelnetCommand, TelnetCommands, TelnetPutError, parse_tags, reply,
};
