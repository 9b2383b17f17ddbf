//! All test vectors. Each one is handled or the test fails.

mod tables;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use tsd_model::{
    Annotation, AnnotationKey, AppendedPoints, BaseTime, Cell, ColumnError, ColumnKind, Family,
    Flags, FlushPace, HistogramBucket, InputFormat, MergeRule, PointValue, Qualifier,
    RollupAggregator, RollupInterval, RollupQualifier, RowError, RowSpan, SaltBucket, SeriesKey,
    SimpleHistogram, StoredPoint, TableSchema, TagkUid, TagvUid, Timestamp, TimestampError, Tsuid,
    ValueTextError, append_entry, compare_queued_rows, encode_column, fix_up, histogram_qualifier,
    java_bytes_hash, parse_point_value, parse_telnet_timestamp, plan_row_compaction,
    read_points_strictly, to_hex,
};

use crate::support::{Fields, hex, load, pair, point_cell, schema, uid};

/// Vectors whose repair depends on write times; only the content of the cells is checked.
const CHOSEN_BY_FSCK: [&str; 2] = ["f-06", "f-07"];

/// Vectors with a timestamp whose base time wraps. It is refused here.
const AFTER_2106: [&str; 2] = ["rk-12", "q-16"];

#[test]
fn every_vector_holds() {
    let file = load("storage-vectors.json");
    let mut ran: BTreeMap<&str, usize> = BTreeMap::new();
    for vector in file.list("vectors") {
        let (id, category) = (vector.text("id"), vector.text("category"));
        let (input, expected) = (vector.at("input"), vector.at("expected"));
        println!("{id}");
        match category {
            _ if AFTER_2106.contains(&id) => after_2106(input),
            "row_key" => row_key(input, expected),
            "qualifier" => qualifier(input, expected),
            "value" => value(input, expected),
            "put_text" => put_text(input, expected),
            "legacy_float" => legacy_float(input, expected),
            "append" => append(input, expected),
            "compaction" => compaction(input, expected),
            "compaction_queue" => compaction_queue(input, expected),
            "annotation" => annotation(input, expected),
            "histogram" => histogram(input, expected),
            "rollup" => rollup(input, expected),
            "uid" => tables::uid_table(id, input, expected),
            "meta" => tables::meta(id, input, expected),
            "tree" => tables::tree(id, input, expected),
            "fsck" => fsck(id, input, expected),
            "cell_timestamp" => cell_timestamp(input, expected),
            _ => panic!("{id}: nobody handles {category}"),
        }
        *ran.entry(category).or_default() += 1;
    }
    let total: usize = ran.values().sum();
    println!("{total} vectors: {ran:?}");
    assert_eq!(i64::try_from(total), Ok(file.int("count")));
    assert_eq!(total, 212);
}

fn after_2106(input: &Value) {
    let number = input.int("timestamp");
    assert_eq!(Timestamp::try_new(number), Err(TimestampError::AfterLast(number)));
}

fn timestamp(number: i64) -> Timestamp {
    Timestamp::try_new(number).unwrap_or_else(|e| panic!("{e}"))
}

fn tags(list: &[Value]) -> Vec<(TagkUid, TagvUid)> {
    fn text(pair: &Value, at: usize) -> &str {
        pair.get(at).and_then(Value::as_str).unwrap_or("")
    }
    list.iter().map(|pair| (uid(text(pair, 0)), uid(text(pair, 1)))).collect()
}

fn series(schema: TableSchema, metric: &str, list: &[Value]) -> SeriesKey {
    if list.is_empty() {
        return SeriesKey::global_annotations(&schema);
    }
    SeriesKey::try_new(&schema, uid(metric), &tags(list)).unwrap_or_else(|e| panic!("{e}"))
}

fn unsalted() -> TableSchema {
    TableSchema::opentsdb_default()
}

fn row_key(input: &Value, expected: &Value) {
    if input.has("salt_base") {
        let hash = java_bytes_hash(&input.hex("salt_base"));
        let buckets = u32::try_from(input.int("salt_buckets")).unwrap_or(0);
        assert_eq!(i64::from(hash), expected.int("java_hash"));
        let bucket = SaltBucket::of_hash(hash, buckets).index();
        assert_eq!(i64::from(bucket), expected.int("bucket"));
        return;
    }
    let width = |at: usize| {
        let widths = input.list("uid_widths");
        widths.get(at).and_then(Value::as_u64).and_then(|w| usize::try_from(w).ok()).unwrap_or(0)
    };
    let buckets = input.at("salt_buckets").as_u64().unwrap_or(20);
    let schema = schema(
        [width(0), width(1), width(2)],
        usize::try_from(input.int("salt_width")).unwrap_or(0),
        u32::try_from(buckets).unwrap_or(0),
    );
    let series = series(schema, input.text("metric_uid"), input.list("tags"));
    let base = timestamp(input.int("timestamp")).base_time();
    assert_eq!(to_hex(&series.row_key(base)), expected.text("row_key"));
    assert_eq!(series.tsuid().to_string(), expected.text("tsuid"));
}

fn flags(input: &Value) -> Flags {
    Flags::from_bits(u8::try_from(input.int("flags")).unwrap_or(0))
}

fn qualifier(input: &Value, expected: &Value) {
    let made = Qualifier::new(timestamp(input.int("timestamp")), flags(input));
    assert_eq!(to_hex(made.as_bytes()), expected.text("qualifier"));
    assert_eq!(i64::from(made.offset_ms()), expected.int("offset_ms"));
    let read = Qualifier::decode(&expected.hex("qualifier"));
    assert_eq!(read, Some(made));
    assert_eq!(ColumnKind::of(made.as_bytes()), ColumnKind::Point);
}

fn value(input: &Value, expected: &Value) {
    let integer = PointValue::Integer(input.int("integer"));
    let (flags, bytes) = integer.encode();
    assert_eq!(to_hex(&bytes), expected.text("value"));
    assert_eq!(i64::from(flags.bits()), expected.int("flags"));
    assert_eq!(PointValue::decode(flags, &bytes), Ok(integer));
}

/// The cell of a point, as `{"qualifier", "value"}`.
fn cell_of(timestamp: Timestamp, value: PointValue) -> Value {
    let (flags, bytes) = value.encode();
    let qualifier = Qualifier::new(timestamp, flags);
    json!({"qualifier": to_hex(qualifier.as_bytes()), "value": to_hex(&bytes)})
}

fn put_text(input: &Value, expected: &Value) {
    if input.has("line") || input.has("json") {
        whole_put(input, expected);
    } else if input.has("timestamp") {
        let formats = [
            ("telnet", InputFormat::Telnet),
            ("http", InputFormat::Http),
            ("bulk_import", InputFormat::Import),
        ];
        for (name, format) in formats {
            match parse_point_value(input.text("text").as_bytes(), format) {
                Ok(value) => {
                    let cell = cell_of(timestamp(input.int("timestamp")), value);
                    assert_eq!(&cell, expected.at(name), "{name}");
                }
                Err(ValueTextError::NotFinite("Infinity")) => {
                    assert_eq!(expected.text(name), "rejected: infinite");
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    } else {
        let number = parse_telnet_timestamp(input.text("text").as_bytes());
        assert_eq!(number, Ok(expected.int("timestamp")));
        let time = timestamp(expected.int("timestamp"));
        assert_eq!(Value::Bool(time.is_millis()), *expected.at("milliseconds"));
        assert_eq!(i64::from(time.base_time().as_secs()), expected.int("base_time"));
        let qualifier = Qualifier::new(time, Flags::from_bits(0));
        assert_eq!(to_hex(qualifier.as_bytes()), expected.text("qualifier_for_1_byte_int"));
    }
}

/// The same point by telnet and by HTTP, with the UIDs of the vector's description.
fn whole_put(input: &Value, expected: &Value) {
    let (format, time, text) = if input.has("line") {
        let words: Vec<&str> = input.text("line").split(' ').collect();
        (InputFormat::Telnet, words.get(2).copied(), words.get(3).copied())
    } else {
        let json = input.text("json");
        let field = |name: &str| json.split(name).nth(1)?.split([':', ',']).nth(1);
        (InputFormat::Http, field("\"timestamp\""), field("\"value\""))
    };
    let time = parse_telnet_timestamp(time.unwrap_or("").as_bytes()).map(timestamp);
    let value = parse_point_value(text.unwrap_or("").as_bytes(), format);
    let (Ok(time), Ok(value)) = (time, value) else { panic!("{input}") };
    let uids = [json!(["000002", "000002"]), json!(["000001", "000001"])];
    let row = series(unsalted(), "000001", &uids).row_key(time.base_time());
    let mut cell = cell_of(time, value);
    if let Some(fields) = cell.as_object_mut() {
        fields.insert("row_key".to_owned(), json!(to_hex(&row)));
        fields.insert("family".to_owned(), json!(Family::T.as_str()));
    }
    assert_eq!(&cell, expected);
}

fn legacy_float(input: &Value, expected: &Value) {
    let (bytes, value) = (input.hex("qualifier"), input.hex("value"));
    let Some(qualifier) = Qualifier::decode(&bytes) else { panic!("{input}") };
    match fix_up(qualifier, &value) {
        Ok((point, _)) => {
            assert_eq!(to_hex(point.qualifier.as_bytes()), expected.text("qualifier"));
            assert_eq!(to_hex(point.value), expected.text("value"));
        }
        Err(ColumnError::CorruptFloat { .. }) => {
            assert_eq!(expected.text("error"), "illegal data");
        }
        Err(error) => panic!("{error}"),
    }
}

fn append(input: &Value, expected: &Value) {
    assert_eq!(to_hex(&ColumnKind::APPEND_QUALIFIER), expected.text("qualifier"));
    let mut column = Vec::new();
    for point in input.list("points") {
        let Some([time, value, bits]) = point.as_array().map(Vec::as_slice) else {
            panic!("{point}")
        };
        let bits = bits.as_u64().and_then(|b| u8::try_from(b).ok()).unwrap_or(0);
        let time = timestamp(time.as_i64().unwrap_or(-1));
        let qualifier = Qualifier::new(time, Flags::from_bits(bits));
        append_entry(qualifier, &hex(value.as_str().unwrap_or("")), &mut column);
    }
    assert_eq!(to_hex(&column), expected.text("value"));
    let read = AppendedPoints::decode(&column).unwrap_or_else(|e| panic!("{e}"));
    let joined = |part: fn(&StoredPoint<'_>) -> Vec<u8>| {
        to_hex(&read.points().iter().flat_map(part).collect::<Vec<u8>>())
    };
    assert_eq!(joined(|p| p.qualifier.as_bytes().to_vec()), expected.text("parsed_qualifiers"));
    assert_eq!(joined(|p| p.value.to_vec()), expected.text("parsed_values"));
    assert_eq!(Value::Bool(read.needs_repair()), *expected.at("needs_repair"));
    assert_eq!(to_hex(&read.repaired_value()), expected.text("repaired_value"));
}

fn key() -> Bytes {
    Bytes::from(hex("00000150E22700000001000001"))
}

fn cells(input: &Value) -> Vec<Cell> {
    let cells = input.list("cells").iter();
    cells.map(|c| point_cell(c.text("qualifier"), c.text("value"), c.int("timestamp"))).collect()
}

fn compaction(input: &Value, expected: &Value) {
    let fix = input.at("fix_duplicates") == &Value::Bool(true);
    let rule = MergeRule::from_settings(fix, false, true);
    let plan = plan_row_compaction(&key(), &cells(input), rule);
    if expected.has("error") {
        assert!(matches!(plan, Err(RowError::Duplicate { .. })), "{plan:?}");
        return;
    }
    let plan = plan.unwrap_or_else(|e| panic!("{e}"));
    let result = plan.result.as_ref().map(|c| pair(&c.qualifier, &c.value));
    let wanted = json!([expected.text("result_qualifier"), expected.text("result_value")]);
    assert_eq!(result, Some(wanted));
    let put = plan.put.as_ref().map_or(Value::Null, |c| pair(&c.qualifier, &c.value));
    assert_eq!(&put, expected.at("put"));
    let delete: Vec<String> = plan.delete.iter().map(|c| to_hex(&c.qualifier)).collect();
    assert_eq!(&json!(delete), expected.at("delete"));
}

fn compaction_queue(input: &Value, expected: &Value) {
    if input.has("keys") {
        let mut keys: Vec<Vec<u8>> =
            input.list("keys").iter().filter_map(Value::as_str).map(hex).collect();
        keys.sort_by(|a, b| compare_queued_rows(&unsalted(), a, b));
        let keys: Vec<String> = keys.iter().map(|k| to_hex(k)).collect();
        assert_eq!(&json!(keys), expected.at("order"));
        return;
    }
    let number = |key: &str| u64::try_from(input.int(key)).unwrap_or(0);
    let pace = FlushPace {
        interval_secs: u32::try_from(number("flush_interval")).unwrap_or(0),
        min_rows: number("min_flush_threshold"),
        speed: u32::try_from(number("flush_speed")).unwrap_or(0),
    };
    assert_eq!(json!(pace.rows_per_round(number("size"))), *expected.at("max_flushes"));
}

fn annotation(input: &Value, expected: &Value) {
    let start_time = if input.has("start_time") { input.int("start_time") } else { 1 };
    let place = AnnotationKey::of(start_time).unwrap_or_else(|e| panic!("{input}: {e}"));
    if expected.has("qualifier") {
        assert_eq!(to_hex(&place.qualifier), expected.text("qualifier"));
        assert_eq!(i64::from(place.base.as_secs()), expected.int("base_time"));
    } else if expected.has("row_key") {
        let schema = unsalted();
        let series = if input.has("tsuid") {
            let tsuid = Tsuid::parse_hex(&schema, input.text("tsuid"));
            SeriesKey::from_tsuid(&schema, &tsuid.unwrap_or_else(|e| panic!("{e}")))
        } else {
            SeriesKey::global_annotations(&schema)
        };
        assert_eq!(to_hex(&series.row_key(place.base)), expected.text("row_key"));
    } else {
        let text = |key: &str| {
            input.get(key).and_then(Value::as_str).map(str::to_owned).unwrap_or_default()
        };
        let custom = input.get("custom").and_then(Value::as_object).map(|fields| {
            let field = |(k, v): (&String, &Value)| (k.clone(), v.as_str().map(str::to_owned));
            fields.iter().map(field).collect()
        });
        let note = Annotation {
            tsuid: text("tsuid"),
            start_time,
            end_time: input.get("end_time").and_then(Value::as_i64).unwrap_or_default(),
            description: text("description"),
            notes: text("notes"),
            custom,
        };
        let json = note.to_json();
        if expected.has("text") {
            assert_eq!(json, expected.text("text"));
        } else {
            assert_eq!(to_hex(json.as_bytes()), expected.text("value"));
        }
        let again = Annotation::from_json(json.as_bytes()).map(|note| note.to_json());
        assert_eq!(again, Ok(json));
    }
}

fn histogram(input: &Value, expected: &Value) {
    if input.has("timestamp") {
        let qualifier = histogram_qualifier(timestamp(input.int("timestamp")));
        assert_eq!(to_hex(&qualifier), expected.text("qualifier"));
        assert_eq!(ColumnKind::of(&qualifier), ColumnKind::Histogram);
        return;
    }
    let mut buckets = Vec::new();
    for bucket in input.list("buckets") {
        let Some([lower, upper, count]) = bucket.as_array().map(Vec::as_slice) else {
            panic!("{bucket}")
        };
        let bound = |v: &Value| v.as_f64().unwrap_or(f64::NAN) as f32;
        buckets.push(HistogramBucket {
            lower: bound(lower),
            upper: bound(upper),
            count: count.as_i64().unwrap_or(0),
        });
    }
    let (underflow, overflow) = (input.int("underflow"), input.int("overflow"));
    let histogram = SimpleHistogram::from_buckets(buckets, underflow, overflow);
    let id = u8::try_from(input.int("codec_id")).unwrap_or(0);
    let value = histogram.encode(id).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(to_hex(&value), expected.text("value"));
    assert_eq!(SimpleHistogram::decode(&value), Ok((id, histogram)));
}

fn rollup(input: &Value, expected: &Value) {
    if input.has("slot") {
        let aggregator = RollupAggregator::Name(input.text("aggregator").as_bytes());
        let slot = u16::try_from(input.int("slot")).unwrap_or(0);
        let qualifier = RollupQualifier { aggregator, slot, flags: flags(input) };
        assert_eq!(to_hex(&qualifier.encode()), expected.text("qualifier"));
        assert_eq!(RollupQualifier::decode(&expected.hex("qualifier")), Some(qualifier));
        return;
    }
    if input.has("agg_tagk") {
        let mut list = input.list("tags").to_vec();
        list.push(json!([input.text("agg_tagk"), input.text("agg_tagv")]));
        let time = timestamp(input.int("timestamp"));
        let row = series(unsalted(), "000001", &list).row_key(time.base_time());
        let mut cell = cell_of(time, PointValue::Integer(input.int("value")));
        if let Some(fields) = cell.as_object_mut() {
            fields.insert("row_key".to_owned(), json!(to_hex(&row)));
        }
        assert_eq!(&cell, expected);
        return;
    }
    let Some(row_span) = RowSpan::parse(input.text("row_span")) else { panic!("{input}") };
    let secs = || u32::try_from(input.int("timestamp")).unwrap_or(0);
    if !input.has("interval") {
        let base = row_span.base_time(secs()).as_secs();
        assert_eq!(i64::from(base), expected.int("base_time"));
        return;
    }
    let interval = rollup_interval(input.text("interval"), row_span);
    if expected.has("intervals") {
        assert_eq!(json!(interval.slots()), *expected.at("intervals"));
        return;
    }
    let id = u8::try_from(input.int("aggregator_id")).unwrap_or(0);
    let (base, qualifier) = interval.place(secs(), id, flags(input));
    let bytes = qualifier.encode();
    assert_eq!(to_hex(&bytes), expected.text("qualifier"));
    assert_eq!(RollupQualifier::decode(&bytes), Some(qualifier));
    if expected.has("base_time") {
        assert_eq!(i64::from(base.as_secs()), expected.int("base_time"));
    }
    if expected.has("row_key") {
        let row = series(unsalted(), "000001", &[json!(["000001", "000001"])]).row_key(base);
        assert_eq!(to_hex(&row), expected.text("row_key"));
        assert_eq!(to_hex(&PointValue::Integer(42).encode().1), expected.text("value"));
    }
}

fn rollup_interval(text: &str, row_span: RowSpan) -> RollupInterval {
    let (number, unit) = text.split_at(text.len() - 1);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => panic!("{text}"),
    };
    RollupInterval {
        interval: text.to_owned(),
        table: String::new(),
        pre_aggregation_table: String::new(),
        row_span,
        seconds: number.parse::<u32>().unwrap_or(0) * unit,
        is_default: false,
        delay_sla_secs: 0,
    }
}

/// Expected put and deletes, in the form of the vectors.
fn expected_writes(expected: &Value) -> (&Value, Vec<&str>) {
    let outcome = expected.get("required").unwrap_or(expected);
    (outcome.at("put"), outcome.list("delete").iter().filter_map(Value::as_str).collect())
}

/// The codec part of fsck: kinds of columns, the strict reader, shortest forms, the merge.
fn fsck(id: &str, input: &Value, expected: &Value) {
    let cells = cells(input);
    let (put, delete) = expected_writes(expected);
    let first = cells.first().unwrap_or_else(|| panic!("{id} has no cell"));
    match id {
        "f-01" | "f-02" | "f-03" | "f-10" => {
            let points: Vec<_> = cells.iter().map(shortest).collect();
            let points: Vec<_> = points
                .iter()
                .map(|(qualifier, value)| StoredPoint { qualifier: *qualifier, value })
                .collect();
            let (qualifier, value) = encode_column(&points);
            assert_eq!(put, &pair(&qualifier.into(), &value.into()));
        }
        "f-04" => {
            let plan = plan_row_compaction(&key(), &cells, MergeRule::Unanimous);
            let Err(RowError::Column { problem, .. }) = plan else { panic!("{plan:?}") };
            assert!(matches!(problem, ColumnError::CorruptFloat { .. }), "{problem}");
        }
        "f-05" | "f-08" | "f-14" => {
            let plan = plan_row_compaction(&key(), &cells, MergeRule::Unanimous);
            let plan = plan.unwrap_or_else(|e| panic!("{e}"));
            let made = plan.put.map(|cell| pair(&cell.qualifier, &cell.value));
            assert_eq!(made.as_ref(), Some(put));
            assert_eq!(
                plan.delete.iter().map(|c| to_hex(&c.qualifier)).collect::<Vec<_>>(),
                delete
            );
        }
        "f-06" | "f-07" => {
            assert!(CHOSEN_BY_FSCK.contains(&id));
            let plan = plan_row_compaction(&key(), &cells, MergeRule::Unanimous);
            assert!(matches!(plan, Err(RowError::Duplicate { offset_ms: 0, .. })), "{plan:?}");
        }
        "f-09" => {
            let points = read_points_strictly(&first.qualifier, &first.value);
            let mut points = points.unwrap_or_else(|e| panic!("{e}"));
            points.sort_by_key(|p| p.qualifier.offset_ms());
            let (qualifier, value) = encode_column(&points);
            assert_eq!(put, &pair(&qualifier.into(), &value.into()));
        }
        "f-11" | "f-13" | "f-15" => {
            assert_eq!(ColumnKind::of(&first.qualifier), ColumnKind::Compacted);
            let points = read_points_strictly(&first.qualifier, &first.value);
            assert_eq!(points.map(|p| p.len()), Ok(2));
            assert_eq!((put, delete.len()), (&Value::Null, 0));
        }
        "f-12" => {
            let kinds: Vec<_> = cells.iter().map(|c| ColumnKind::of(&c.qualifier)).collect();
            assert_eq!(kinds, [ColumnKind::Unknown; 3]);
        }
        _ => panic!("nobody handles {id}"),
    }
}

/// The point of a cell under the shortest form of its integer.
fn shortest(cell: &Cell) -> (Qualifier, Vec<u8>) {
    let Some(old) = Qualifier::decode(&cell.qualifier) else { panic!("{cell:?}") };
    let value = PointValue::decode(old.flags(), &cell.value).unwrap_or_else(|e| panic!("{e}"));
    let (flags, bytes) = value.encode();
    (old.with_flags(flags), bytes.to_vec())
}

fn cell_timestamp(input: &Value, expected: &Value) {
    let time = timestamp(input.int("timestamp"));
    if input.at("use_otsdb_timestamp") == &Value::Bool(true) {
        assert_eq!(json!(time.as_millis()), *expected.at("cell_timestamp"));
        assert!(time.base_time() >= BaseTime::containing(0));
    } else {
        assert_eq!(expected.text("cell_timestamp"), "server time");
    }
}
