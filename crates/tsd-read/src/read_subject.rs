//! What a read shows, compared with the rights of its client.
//!
//! Every read declares its subject. Rights are checked before a name is resolved, so an error never tells whether a
//! metric exists.

use tsd_model::{Uid, UidKind, from_hex};
use tsd_query::{Query, SeriesSource};

use crate::{
    metric_rights::{MetricAct, MetricRights},
    query::QueryFailure,
    read_shared::ReadShared,
};

/// The metrics of which a read shows points or names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadSubject<'a> {
    /// The metrics of the sub queries, which may also delete.
    Query(&'a Query),
    /// One metric by name.
    Metric(&'a str),
    /// Metrics by name, and the metrics of TSUIDs.
    Series {
        /// Names of metrics.
        metrics: &'a [String],
        /// Bytes of TSUIDs.
        tsuids: &'a [Vec<u8>],
    },
    /// Any metric.
    AllMetrics,
    /// Nothing that belongs to a metric.
    NoMetric,
}

impl ReadSubject<'_> {
    /// Fails unless the client may read everything that the read shows, and may delete what it deletes.
    pub(crate) async fn check(
        self,
        rights: &MetricRights,
        shared: &ReadShared,
    ) -> Result<(), QueryFailure> {
        if rights.are_all() {
            return Ok(());
        }
        let check = RightsCheck { rights, shared, act: MetricAct::Read };
        match self {
            Self::NoMetric => {}
            Self::AllMetrics => rights.check_all(MetricAct::Read)?,
            Self::Metric(name) => rights.check(MetricAct::Read, name)?,
            Self::Series { metrics, tsuids } => {
                for metric in metrics {
                    rights.check(MetricAct::Read, metric)?;
                }
                for tsuid in tsuids {
                    check.tsuid(tsuid).await?;
                }
            }
            Self::Query(query) => {
                check.query(query).await?;
                if query.delete {
                    RightsCheck { act: MetricAct::Delete, ..check }.query(query).await?;
                }
            }
        }
        Ok(())
    }
}

/// A check of one act.
struct RightsCheck<'a> {
    rights: &'a MetricRights,
    shared: &'a ReadShared,
    act: MetricAct,
}

impl RightsCheck<'_> {
    async fn query(&self, query: &Query) -> Result<(), QueryFailure> {
        for sub in &query.sub_queries {
            match &sub.source {
                SeriesSource::Metric(name) => self.rights.check(self.act, name)?,
                SeriesSource::Tsuids(tsuids) => {
                    for tsuid in tsuids {
                        // A malformed TSUID has no metric, so the client may not read it either.
                        self.tsuid(&from_hex(tsuid.as_bytes()).unwrap_or_default()).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn tsuid(&self, tsuid: &[u8]) -> Result<(), QueryFailure> {
        let metric = tsuid.get(..self.shared.schema.metric_width());
        let name = match metric.and_then(|bytes| Uid::try_new(bytes).ok()) {
            Some(uid) => self.shared.names.names_of(UidKind::Metric, &[uid]).await?.pop().flatten(),
            None => None,
        };
        Ok(self.rights.check_tsuid(self.act, tsuid, name.as_deref())?)
    }
}
