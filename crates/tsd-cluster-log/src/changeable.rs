//! Names of the settings that all nodes have alike and that may change while nodes run.

use tsd_cluster::SharedSettings;

/// Settings that the nodes of a cluster have alike, and that change while nodes run: they decide what is written and
/// what queries return, and all stored rows stay readable with any value.
pub const CHANGEABLE: [&str; 25] = [
    "tsd.cluster.reads",
    "tsd.core.histograms.config",
    "tsd.core.meta.enable_realtime_ts",
    "tsd.core.meta.enable_realtime_uid",
    "tsd.core.meta.enable_tsuid_incrementing",
    "tsd.core.meta.enable_tsuid_tracking",
    "tsd.core.tag.allow_specialchars",
    "tsd.core.timezone",
    "tsd.core.tree.enable_processing",
    "tsd.core.uid.random_metrics",
    "tsd.http.header_tag",
    "tsd.query.delete.whole_rows",
    "tsd.query.enable_fuzzy_filter",
    "tsd.query.multi_get.get_all_salts",
    "tsd.query.skip_unresolved_tagvs",
    "tsd.rollups.agg_tag_key",
    "tsd.rollups.block_derived",
    "tsd.rollups.config",
    "tsd.rollups.enable",
    "tsd.rollups.raw_agg_tag_value",
    "tsd.rollups.split_query.enable",
    "tsd.rollups.tag_raw",
    "tsd.storage.enable_appends",
    "tsd.storage.fix_duplicates",
    "tsd.storage.hbase.series_index",
];

/// True for the text of a difference that [`adopt_settings`](crate::adopt_settings) removes.
pub(crate) fn is_changeable(difference: &str) -> bool {
    SharedSettings::is_changeable(difference)
        || CHANGEABLE.iter().any(|name| difference.split(' ').next() == Some(name))
}
