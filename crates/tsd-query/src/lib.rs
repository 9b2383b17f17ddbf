//! OpenTSDB's query engine over columns, without I/O.
//!
//! The stages are [`RawQuery`] → [`Query`] → plan → series → groups. The crate is synchronous, and
//! reads neither a clock nor a store. Results equal OpenTSDB's to the last bit of a sum, including
//! the quirks that dashboards rely on.

mod aggregator;
mod error;
mod exp;
mod filter;
mod gexp;
mod histogram;
mod limits;
mod number;
mod pipeline;
mod plan;
mod request;
mod rollup;
mod search_text;
mod time;
mod valid_names;

pub use aggregator::{Aggregator, Estimation, Percentile, percentile};
pub use error::{
    BodyQueryError, DataError, ExpError, FillError, GexpError, LimitError, LookupStep, MissingName,
    PointConflict, QueryError, RateError, RequestError, RollupError, SeriesError, TagEntryError,
    TimeError, TimeProblem, UriError,
};
pub use exp::{
    ExpColumn, ExpExpression, ExpMetric, ExpOutput, ExpQuery, ExpResult, JoinOperator,
    RawExpExpression, RawExpFill, RawExpFilter, RawExpJoin, RawExpMetric, RawExpOutput,
    RawExpQuery, RawExpTime,
};
pub use filter::{
    Comparison, FilterError, FilterKind, PatternError, TagFilter, ValueFilter, ValueFilterError,
    Wildcard, compile_pattern,
};
pub use gexp::{Gexp, GexpQuery, GexpSeries};
pub use histogram::{HistogramOutput, HistogramSeries, evaluate_histograms};
pub use limits::{ExecutionLimits, Unlimited};
pub use pipeline::{
    AggregateInput, DayBuckets, GroupEvaluation, GroupTags, NamedSeries, NoSummaries, OrderedSpans,
    OutputSeries, SeriesBuilder, SeriesPipeline, Span, SpanGroup, SpanList, aggregate, evaluate,
    group_ordered, group_spans,
};
pub use plan::{
    KeyRange, PlanSettings, PostFilter, ResolvedFilter, ResolvedSubQuery, ScanWindow,
    SeriesSelection, SubQueryPlan, TagSelection, TagUidCondition,
};
pub use request::{
    BodyFilter, BodyValueFilter, DownsampleError, DownsampleSpec, DownsampleWindow, FillPolicy,
    Query, RateOptions, RawQuery, RawSubQuery, RollupUsage, SeriesSource, SubQuery,
    parse_m_parameter, parse_tsuid_parameter,
};
pub use rollup::{
    ReadAttempt, ReadSource, ReadStrategy, RollupAverageBuilder, RollupCells, RollupSettings,
    choose_reads, join_split,
};
pub use search_text::{SearchField, SearchText, SearchTextError, Searchable};
pub use time::{Clock, Duration, DurationError, TimeUnit, find_zone, parse_time};
pub use valid_names::{nearest_name, valid_names};
