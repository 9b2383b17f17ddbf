//! Bodies and parameters of HTTP requests, and what is answered.

mod annotation;
mod api_error;
mod body_fields;
mod exp_answer;
mod exp_echo;
mod exp_request;
mod extra_fields;
mod histogram_batch;
mod last;
mod point_fields;
mod put_batch;
mod put_error;
mod put_reply;
mod query_answer;
mod query_echo;
mod query_list;
mod query_request;
mod query_string;
mod rollup_batch;
mod search;
mod sub_query_echo;
mod tag_text;

pub use annotation::{
    AnnotationRange, parse_annotation_body, parse_annotation_range_body,
    parse_annotation_range_uri, parse_annotation_uri, parse_annotations_body, render_annotation,
    render_annotations,
};
pub use api_error::{ApiError, LegacyForm};
pub use exp_answer::ExpAnswerWriter;
pub use exp_echo::render_exp_query;
pub use exp_request::parse_exp_body;
pub use histogram_batch::{HistogramBatch, HttpHistogram};
pub use last::{
    LastRequest, LastShown, LastWanted, parse_last_body, parse_last_uri, render_last_points,
};
pub use put_batch::{CommonTag, HttpPoint, NAME_SEPARATOR, PutBatch, RefusedPoint};
pub use put_error::{PutBodyError, PutPointError};
pub use put_reply::{PutOptions, PutOutcome, PutReply};
pub use query_answer::{
    AnswerLayout, QueryAnswerWriter, SeriesAnswer, StatValue, Summary, write_annotation,
};
pub use query_echo::render_query;
pub use query_list::{
    ListedClient, ListedCompleted, ListedRunning, listed_exp_query, render_query_list,
};
pub use query_request::{
    parse_gexp_body, parse_gexp_uri, parse_query_body, parse_query_uri, query_error,
};
pub use query_string::{QueryString, QueryStringError};
pub use rollup_batch::{HttpRollup, RollupBatch};
pub use search::{
    LookupRequest, LookupShown, SearchType, check_plugin_search, parse_lookup_body,
    parse_lookup_uri, render_lookup,
};
pub use sub_query_echo::render_sub_query;
