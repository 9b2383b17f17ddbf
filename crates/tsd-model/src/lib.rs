//! Encoding and decoding of every byte in OpenTSDB's tables, without I/O.
//!
//! No function waits, reads a clock or logs, and no input makes it panic. `docs/storage-format.md`
//! describes the layouts.

mod annotation;
mod base_time;
mod calendar_units;
mod cell;
mod column_kind;
mod columns;
mod compaction_queue;
mod flags;
mod float_text;
mod hex;
mod histogram;
mod integer_text;
mod java_digits;
mod java_hash;
mod java_letter;
mod java_text;
mod json_object;
mod kind_uid;
mod meta;
mod meta_edit;
mod name;
mod packed_run;
mod per_kind;
mod point_column;
mod point_value;
mod qualifier;
mod rollup;
mod row_compaction;
mod row_conflict;
mod row_decode;
mod row_delete;
mod row_error;
mod row_key;
mod row_merge;
mod series_key;
mod series_meta;
mod summary;
mod table_schema;
mod timestamp;
mod timestamp_text;
mod tree;
mod tsuid;
mod uid;
mod uid_table;
mod value_text;

pub use annotation::{Annotation, AnnotationKey};
pub use base_time::BaseTime;
pub use calendar_units::{DAY_MS, DAY_SECS, HOUR_MS};
pub use cell::{Cell, Family, Row};
pub use column_kind::ColumnKind;
pub use columns::{PointColumns, Value, ValueKinds};
pub use compaction_queue::{FlushPace, compare_queued_rows};
pub use flags::Flags;
pub use float_text::{FloatTextError, parse_java_double, parse_java_single};
pub use hex::{from_hex, to_hex};
pub use histogram::{
    HistogramBucket, HistogramCodecs, HistogramCodecsError, HistogramError, SimpleHistogram,
    histogram_offset_ms, histogram_qualifier, parse_bounds,
};
pub use integer_text::{IntegerTextError, parse_integer};
pub use java_hash::{
    java_bytes_hash, sort_as_copied_hash_map, sort_as_grown_hash_map, sort_as_sized_hash_map,
};
pub use java_text::{java_byte_list, java_double, write_java_double, write_java_json_string};
pub use json_object::{CustomFields, JsonError};
pub use kind_uid::{
    KindUid, KnownKind, MetricKind, MetricUid, TagkKind, TagkUid, TagvKind, TagvUid,
};
pub use meta::{TS_COUNTER_QUALIFIER, TS_META_QUALIFIER, TsMeta, UidMeta};
pub use meta_edit::{TsMetaEdit, UidMetaEdit};
pub use name::{
    JavaChar, MAX_NAME_BYTES, NameEncodeError, NameError, NameRole, NameRule, decode_latin1,
    encode_latin1, encode_latin1_lossy,
};
pub use packed_run::{
    ChunkEncoder, ChunkPoint, DaySummaries, PackablePoint, PackedChunk, PackedRun, PackedRunError,
    RunEncoder, RunShape, SummaryEncoder,
};
pub use per_kind::PerKind;
pub use point_column::{
    AppendedPoints, PointReader, StoredPoint, append_entry, encode_column, fix_up, read_column,
    read_points_strictly,
};
pub use point_value::{EncodedValue, PointValue, ValueError};
pub use qualifier::Qualifier;
pub use rollup::{
    RollupAggregator, RollupConfig, RollupConfigError, RollupInterval, RollupQualifier,
    RollupRowDecoder, RowSpan,
};
pub use row_compaction::{ReplacedColumn, RowCompaction, plan_row_compaction, superseded_ms};
pub use row_conflict::{ConflictingPoint, conflicting_points};
pub use row_decode::{RowExtras, decode_row};
pub use row_delete::{PointDelete, plan_point_delete};
pub use row_error::{ColumnError, RowError};
pub use row_key::{RowKey, RowKeyError};
pub use row_merge::{DroppedDuplicates, MergeRule, points_and_other_cells};
pub use series_key::{SaltBucket, SeriesKey, SeriesKeyError};
pub use series_meta::{NamedUidMeta, SeriesMeta};
pub use summary::{
    SumBucket, SummarizedPoints, Summary, SummaryFold, SummaryUse, fold_extreme, fold_sum,
    is_exact_magnitude,
};
pub use table_schema::{SchemaError, TableSchema};
pub use timestamp::{Timestamp, TimestampError, millis_of};
pub use timestamp_text::{
    TimestampTextError, parse_http_timestamp_number, parse_http_timestamp_string,
    parse_import_timestamp, parse_telnet_timestamp,
};
pub use tree::{
    BRANCH_QUALIFIER, Branch, Leaf, TREE_QUALIFIER, Tree, TreeColumn, TreeDefinition, TreeEdit,
    TreeId, TreeRule, TreeRuleEdit, TreeRuleError, TreeRuleKind,
};
pub use tsuid::{Tsuid, TsuidError};
pub use uid::{Uid, UidError, UidKind};
pub use uid_table::{UID_COUNTER_ROW, UidCell, UidCellError, decode_counter, encode_counter};
pub use value_text::{InputFormat, ValueTextError, parse_common_value, parse_point_value};
