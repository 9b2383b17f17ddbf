//! A table of rows in memory, keyed as the real one.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value as Json;
use tsd_model::{PointColumns, TableSchema, Value};
use tsd_query::{NameKind, QueryError, SeriesPipeline, Span, SubQueryPlan};

/// UIDs by name, from 1 in order of first appearance.
#[derive(Default)]
pub(crate) struct Names {
    kinds: [Vec<String>; 3],
}

impl Names {
    pub(crate) fn assign(&mut self, kind: NameKind, name: &str) -> Bytes {
        if self.uid(kind, name).is_none() {
            self.kinds[kind as usize].push(name.to_owned());
        }
        self.uid(kind, name).unwrap()
    }

    pub(crate) fn uid(&self, kind: NameKind, name: &str) -> Option<Bytes> {
        let at = self.kinds[kind as usize].iter().position(|n| n == name)? as u32 + 1;
        Some(Bytes::copy_from_slice(&at.to_be_bytes()[1..]))
    }

    pub(crate) fn name(&self, kind: NameKind, uid: &[u8]) -> &str {
        let number = uid.iter().fold(0, |n, b| n << 8 | usize::from(*b));
        &self.kinds[kind as usize][number - 1]
    }
}

/// Rows of raw data.
pub(crate) struct Table {
    pub(crate) schema: TableSchema,
    pub(crate) names: Names,
    rows: BTreeMap<Vec<u8>, BTreeMap<i64, Value>>,
}

pub(crate) fn time_ms(json: &Json) -> i64 {
    let time = json.as_i64().unwrap();
    if time > 9_999_999_999 { time } else { time * 1000 }
}

pub(crate) fn value(json: &Json) -> Value {
    json.as_i64().map_or_else(|| Value::Float(json.as_f64().unwrap()), Value::Integer)
}

impl Table {
    pub(crate) fn of_case(case: &Json, salt_buckets: u32) -> Self {
        let salt_width = usize::from(salt_buckets > 0);
        let schema = TableSchema::try_new(3, 3, 3, salt_width, salt_buckets.max(1)).unwrap();
        let mut table = Self { schema, names: Names::default(), rows: BTreeMap::new() };
        for uid in case["uids"].as_array().into_iter().flatten() {
            let kind = match uid[0].as_str().unwrap() {
                "metric" => NameKind::Metric,
                "tagk" => NameKind::Tagk,
                _ => NameKind::Tagv,
            };
            table.names.assign(kind, uid[1].as_str().unwrap());
        }
        for point in case["points"].as_array().unwrap() {
            table.put(point);
        }
        table
    }

    fn put(&mut self, point: &Json) {
        let metric = self.names.assign(NameKind::Metric, point["metric"].as_str().unwrap());
        let mut pairs: Vec<(Bytes, Bytes)> = Vec::new();
        for (tagk, tagv) in point["tags"].as_object().unwrap() {
            let tagk = self.names.assign(NameKind::Tagk, tagk);
            let tagv = self.names.assign(NameKind::Tagv, tagv.as_str().unwrap());
            pairs.push((tagk, tagv));
        }
        pairs.sort();
        let tags: Vec<u8> =
            pairs.iter().flat_map(|(k, v)| [k.as_ref(), v]).flatten().copied().collect();
        let time = time_ms(&point["timestamp"]);
        let base = u32::try_from(time / 3_600_000 * 3_600).unwrap();
        // Which bucket a series is in does not matter, as long as it is one and the same.
        let salt = tags.iter().fold(7_u32, |n, b| n * 31 % 251 + u32::from(*b))
            % self.schema.salt_buckets();
        let mut key = vec![salt as u8; self.schema.salt_width()];
        key.extend_from_slice(&metric);
        key.extend_from_slice(&base.to_be_bytes());
        key.extend_from_slice(&tags);
        self.rows.entry(key).or_default().insert(time, value(&point["value"]));
    }

    /// Reads what a plan says, through the pipeline.
    pub(crate) fn read(
        &self,
        plan: &SubQueryPlan,
        pipeline: &SeriesPipeline,
    ) -> Result<Vec<Span>, QueryError> {
        let mut builders = BTreeMap::new();
        for range in &plan.ranges {
            for (key, points) in self.rows.range(range.start.to_vec()..range.stop.to_vec()) {
                let tags = &key[self.schema.tags_start()..];
                let name_of = |uid: &[u8]| Some(self.names.name(NameKind::Tagv, uid));
                if !plan.admits(tags) || !plan.accepts(tags, name_of) {
                    continue;
                }
                let mut columns = PointColumns::default();
                for (time, value) in points {
                    columns.push(*time, *value);
                }
                let tsuid = [&plan.metric, tags].concat();
                let builder = builders.entry(tsuid).or_insert_with(|| pipeline.start());
                builder.push(pipeline, &columns);
            }
        }
        let spans = builders.into_iter().map(|(tsuid, b)| b.finish(pipeline, tsuid.into()));
        spans.filter_map(Result::transpose).collect()
    }
}
