//! Requests: from a URI or body to a validated [`Query`].
//!
//! Parsers of bodies and URIs fill a [`RawQuery`]. [`RawQuery::validate`] checks it in OpenTSDB's
//! order, so that it reports the same one of several mistakes.

mod downsample;
mod query;
mod rate;
mod raw;
mod uri;
mod validate;

pub use downsample::{DownsampleError, DownsampleSpec, DownsampleWindow, FillPolicy};
pub use query::{Query, RollupUsage, SeriesSource, SubQuery};
pub use rate::RateOptions;
pub use raw::{BodyFilter, BodyValueFilter, RawQuery, RawSubQuery};
pub use uri::{parse_m_parameter, parse_tsuid_parameter};
