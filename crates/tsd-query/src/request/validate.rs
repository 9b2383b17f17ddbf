//! Validates a query in OpenTSDB's order, with OpenTSDB's error texts.

use std::collections::HashMap;

use super::{DownsampleSpec, Query, RawQuery, RawSubQuery, RollupUsage, SeriesSource, SubQuery};
use crate::{
    aggregator::Aggregator,
    error::{QueryError, RequestError},
    time::{Clock, find_zone, parse_time},
};

/// Greatest time that OpenTSDB accepts: thirteen digits.
const LAST_MS: i64 = 9_999_999_999_999;

impl RawQuery {
    /// Checks everything that does not need name lookups.
    pub fn validate(&self, clock: &Clock) -> Result<Query, QueryError> {
        let queries = self.queries.as_deref().ok_or(RequestError::NoQueries)?;
        let zone_name = self.timezone.as_deref();
        let time = |text: &Option<String>| {
            parse_time(text.as_deref().unwrap_or_default(), zone_name, clock)
        };
        let start_ms = time(&self.start)?.ok_or(RequestError::NoStart)?;
        let end_ms = time(&self.end)?.unwrap_or(clock.now_ms);
        if end_ms < start_ms {
            return Err(RequestError::EndBeforeStart { start_ms, end_ms }.into());
        }
        if queries.is_empty() {
            return Err(RequestError::NoQueries.into());
        }
        let mut sub_queries: Vec<SubQuery> = Vec::with_capacity(queries.len());
        for (raw, index) in queries.iter().zip(self.sub_query_indexes()) {
            if index < sub_queries.len() {
                continue;
            }
            let sub = raw.validate(index, self.use_calendar)?;
            if sub.downsample.is_some()
                && let Some(name) = zone_name.filter(|name| !name.is_empty())
                && find_zone(name).is_none()
            {
                return Err(RequestError::UnknownZone.into());
            }
            sub_queries.push(sub);
        }
        for sub in &sub_queries {
            sub.check_histogram()?;
        }
        for time in [start_ms, end_ms] {
            if !(0..=LAST_MS).contains(&time) {
                return Err(RequestError::Timestamp(time).into());
            }
        }
        Ok(Query {
            start_ms,
            end_ms,
            zone: zone_name.and_then(find_zone).unwrap_or(jiff::tz::TimeZone::UTC),
            sub_queries,
            ms_resolution: self.ms_resolution,
            show_tsuids: self.show_tsuids,
            show_query: self.show_query,
            show_stats: self.show_stats,
            show_summary: self.show_summary,
            no_annotations: self.no_annotations,
            global_annotations: self.global_annotations,
            all_points: false,
            delete: self.delete,
            dry_run: self.dry_run,
            override_byte_limit: self.override_byte_limit,
            override_data_point_limit: self.override_data_point_limit,
        })
    }
}

impl RawQuery {
    /// Index of each of `queries` in the validated query, which omits duplicates.
    #[must_use]
    pub(crate) fn sub_query_indexes(&self) -> Vec<usize> {
        let queries = self.queries.as_deref().unwrap_or_default();
        let mut distinct: Vec<&RawSubQuery> = Vec::new();
        // Most sub queries differ in metric or aggregator, so these are compared first.
        let mut by_name: HashMap<_, Vec<usize>> = HashMap::new();
        let mut indexes = Vec::with_capacity(queries.len());
        for raw in queries {
            let candidates =
                by_name.entry((&raw.metric, &raw.aggregator, &raw.tsuids)).or_default();
            let earlier = candidates
                .iter()
                .copied()
                .find(|at| distinct.get(*at).is_some_and(|earlier| raw.is_duplicate_of(earlier)));
            indexes.push(earlier.unwrap_or_else(|| {
                candidates.push(distinct.len());
                distinct.push(raw);
                distinct.len() - 1
            }));
        }
        indexes
    }
}

impl RawSubQuery {
    /// True if two sub queries are duplicates: equal except for the rollup usage.
    fn is_duplicate_of(&self, other: &Self) -> bool {
        self.aggregator == other.aggregator
            && self.metric == other.metric
            && self.tsuids == other.tsuids
            && self.downsample == other.downsample
            && self.rate == other.rate
            && self.rate_options == other.rate_options
            && self.filters == other.filters
            && self.value_filters == other.value_filters
            && self.explicit_tags == other.explicit_tags
            && self.percentiles == other.percentiles
            && self.show_histogram_buckets == other.show_histogram_buckets
            && self.pre_aggregate == other.pre_aggregate
            && self.offset_ms == other.offset_ms
    }

    fn validate(&self, index: usize, use_calendar: bool) -> Result<SubQuery, QueryError> {
        let name = self.aggregator.as_deref().filter(|name| !name.is_empty());
        let name = name.ok_or(RequestError::NoAggregator)?;
        let aggregator = Aggregator::from_name(name)
            .ok_or_else(|| RequestError::UnknownAggregator(name.to_owned()))?;
        let source = if self.tsuids.is_empty() {
            let metric = self.metric.as_deref().filter(|metric| !metric.is_empty());
            let metric = metric.ok_or(RequestError::NoSource)?;
            SeriesSource::Metric(metric.to_owned())
        } else {
            SeriesSource::Tsuids(self.tsuids.clone())
        };
        let downsample = match self.downsample.as_deref().filter(|text| !text.is_empty()) {
            None => None,
            Some(text) => {
                Some(DownsampleSpec::parse(text, use_calendar).map_err(RequestError::Downsample)?)
            }
        };
        let usage = self.rollup_usage.as_deref().map(RollupUsage::from_name);
        Ok(SubQuery {
            index,
            aggregator,
            source,
            given_metric: self.metric.clone(),
            filters: self.filters.clone(),
            value_filters: self.value_filters.clone(),
            downsample,
            rate: self.rate.then(|| self.rate_options.unwrap_or_default()),
            rate_options: self.rate_options,
            explicit_tags: self.explicit_tags,
            percentiles: self.percentiles.clone(),
            show_histogram_buckets: self.show_histogram_buckets,
            pre_aggregate: self.pre_aggregate,
            rollup_usage: usage,
            offset_ms: self.offset_ms,
        })
    }
}

impl SubQuery {
    /// Checks that a histogram query only adds histograms.
    fn check_histogram(&self) -> Result<(), RequestError> {
        if !self.is_histogram() {
            return Ok(());
        }
        if !self.value_filters.is_empty() {
            return Err(RequestError::HistogramValueFilter);
        }
        if !matches!(self.aggregator, Aggregator::None | Aggregator::Sum) {
            return Err(RequestError::HistogramAggregator);
        }
        match &self.downsample {
            Some(DownsampleSpec { function, .. }) if *function != Aggregator::Sum => {
                Err(RequestError::HistogramDownsample)
            }
            _ => match self.percentiles.iter().find(|p| !(0.0..=100.0).contains(*p)) {
                Some(p) => Err(RequestError::HistogramPercentile(format!("{p:?}"))),
                None => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use super::*;
    use crate::request::{DownsampleError, RateOptions, parse_m_parameter};

    const NOW_MS: i64 = 1_357_300_800_000;

    fn query(start: &str, end: &str, m: &[&str]) -> RawQuery {
        RawQuery {
            start: (!start.is_empty()).then(|| start.to_owned()),
            end: (!end.is_empty()).then(|| end.to_owned()),
            queries: Some(m.iter().map(|m| parse_m_parameter(m).unwrap()).collect()),
            ..RawQuery::default()
        }
    }

    #[track_caller]
    fn check_error(raw: &RawQuery, expected: RequestError) {
        assert_eq!(raw.validate(&Clock::utc(NOW_MS)).unwrap_err(), expected.into());
    }

    #[test]
    fn end_defaults_to_now() {
        let checked = query("1356998400", "", &["sum:m"]).validate(&Clock::utc(NOW_MS)).unwrap();
        assert_eq!((checked.start_ms, checked.end_ms), (1_356_998_400_000, NOW_MS));
        assert!(query("5", "5", &["sum:m"]).validate(&Clock::utc(NOW_MS)).is_ok());
    }

    #[test]
    fn invalid_requests_are_rejected() {
        check_error(&query("", "", &["sum:m"]), RequestError::NoStart);
        let (start_ms, end_ms) = (1_356_998_410_000, 1_356_998_400_000);
        let reversed = query("1356998410", "1356998400", &["sum:m"]);
        check_error(&reversed, RequestError::EndBeforeStart { start_ms, end_ms });
        check_error(&query("1", "2", &[]), RequestError::NoQueries);
        let absent = RawQuery { start: Some("1".into()), ..RawQuery::default() };
        check_error(&absent, RequestError::NoQueries);
        let late = 13_569_984_000_000;
        check_error(
            &query("13569984000000", "13569984000001", &["sum:m"]),
            RequestError::Timestamp(late),
        );
        for (m, expected) in [
            ("nope:m", RequestError::UnknownAggregator("nope".into())),
            (":m", RequestError::NoAggregator),
            ("sum:", RequestError::NoSource),
            ("sum:1m-none:m", RequestError::Downsample(DownsampleError::NoneFunction)),
            ("sum:percentiles[101]:m", RequestError::HistogramPercentile("101.0".into())),
            ("max:percentiles[50]:m", RequestError::HistogramAggregator),
            ("sum:1m-max:percentiles[50]:m", RequestError::HistogramDownsample),
            ("sum:percentiles[50]:m{value=gt(1)}", RequestError::HistogramValueFilter),
        ] {
            check_error(&query("1", "2", &[m]), expected);
        }
    }

    #[test]
    fn zone_is_checked_only_with_downsampling() {
        let mut raw = query("1356998400", "", &["sum:m"]);
        raw.timezone = Some("Nowhere".into());
        assert!(raw.validate(&Clock::utc(NOW_MS)).is_ok());
        let mut raw = query("1356998400", "", &["sum:1d-sum:m"]);
        raw.timezone = Some("Nowhere".into());
        check_error(&raw, RequestError::UnknownZone);
    }

    #[test]
    fn equal_sub_queries_collapse() {
        let checked = |m: &[&str]| query("1", "2", m).validate(&Clock::utc(NOW_MS)).unwrap();
        assert_eq!(checked(&["max:m", "min:m", "max:m"]).sub_queries.len(), 2);
        assert_eq!(checked(&["max:rollup_raw:m", "max:m"]).sub_queries.len(), 1);
        let two = checked(&["max:m{value=gt(1)}", "max:m{value=gt(2)}"]).sub_queries;
        assert_eq!(two.iter().map(|sub| sub.index).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn rate_options_apply_only_with_rate() {
        let mut raw = query("1", "2", &["sum:m"]);
        let options = RateOptions { counter: true, ..RateOptions::default() };
        raw.queries.as_mut().unwrap()[0].rate_options = Some(options);
        let sub = &raw.validate(&Clock::utc(NOW_MS)).unwrap().sub_queries[0];
        assert_eq!(sub.rate, None);
        assert_eq!(sub.rate_options, Some(options));
    }
}
