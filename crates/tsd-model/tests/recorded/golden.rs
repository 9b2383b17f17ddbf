//! Every cell of the golden tables is decoded and encoded to the same bytes.
//!
//! Damaged cells are listed with the reason why they cannot be decoded; a cell that newly fails, or no
//! longer fails, fails the test.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde_json::Value;
use tsd_model::{
    Annotation, AnnotationKey, AppendedPoints, BaseTime, Branch, Cell, ColumnKind, Family, Leaf,
    MergeRule, PointColumns, PointReader, PointValue, RollupQualifier, Row, RowError, RowExtras,
    RowKey, SeriesKey, SimpleHistogram, TableSchema, TreeColumn, TreeDefinition, TreeRule, TsMeta,
    UidCell, decode_counter, decode_row, encode_column, histogram_offset_ms, plan_row_compaction,
    read_points_strictly, to_hex,
};

use crate::{
    broken::{BROKEN, UNREADABLE},
    support::{Fields, hex, load, schema},
};

const FILES: [&str; 13] = [
    "points",
    "salted",
    "uid",
    "compaction",
    "appends",
    "annotations",
    "meta",
    "tree",
    "rollups",
    "histograms",
    "imports",
    "fsck",
    "uidfsck",
];

/// One recorded cell.
struct Recorded<'a> {
    table: &'a str,
    row: Bytes,
    family: &'a str,
    qualifier: Bytes,
    value: Bytes,
}

/// A case's cells with its schema.
struct Case<'a> {
    file: &'a str,
    name: &'a str,
    schema: TableSchema,
}

#[test]
fn every_cell_is_decoded_and_encoded() {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut broken: BTreeSet<String> = BTreeSet::new();
    let mut cases = 0;
    for file in FILES {
        let recorded = load(&format!("golden/{file}.json"));
        for case in recorded.as_array().into_iter().flatten() {
            cases += 1;
            let info = Case { file, name: case.text("name"), schema: case_schema(case) };
            for cell in cells_of(case) {
                match read(&info, &cell) {
                    Ok(kind) => *kinds.entry(format!("{}: {kind}", cell.table)).or_default() += 1,
                    Err(problem) => {
                        let (qualifier, value) = (to_hex(&cell.qualifier), to_hex(&cell.value));
                        broken.insert(format!(
                            "{file}: {}: {qualifier}={value}: {problem}",
                            info.name
                        ));
                    }
                }
            }
        }
    }
    let read: usize = kinds.values().sum();
    println!("{cases} cases, {read} cells read, {} broken on purpose: {kinds:#?}", broken.len());
    assert_eq!(cases, 370);
    let expected: BTreeSet<String> = BROKEN.iter().map(|line| (*line).to_owned()).collect();
    for line in &broken {
        println!("    {line:?},");
    }
    assert_eq!(broken, expected);
    assert!(read > 2_400);
}

fn case_schema(case: &Value) -> TableSchema {
    let setting = |key: &str, default: usize| {
        let text = case.at("config").get(key).and_then(Value::as_str);
        text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{key}={text}")))
    };
    let width = |kind: &str| setting(&format!("tsd.storage.uid.width.{kind}"), 3);
    let buckets = u32::try_from(setting("tsd.storage.salt.buckets", 20)).unwrap_or(0);
    let widths = [width("metric"), width("tagk"), width("tagv")];
    schema(widths, setting("tsd.storage.salt.width", 0), buckets)
}

/// Cells planted, recorded between steps, and present at the end.
fn cells_of(case: &Value) -> Vec<Recorded<'_>> {
    let mut cells = Vec::new();
    for step in case.list("steps") {
        for planted in step.get("plant").and_then(Value::as_array).into_iter().flatten() {
            if let Some((table, rest)) = planted.as_array().and_then(|p| p.split_first()) {
                cells.extend(table.as_str().map(|table| recorded(table, rest)));
            }
        }
        if let Some(tables) = step.get("tables") {
            add_tables(tables, &mut cells);
        }
    }
    add_tables(case.at("tables"), &mut cells);
    cells
}

fn add_tables<'a>(tables: &'a Value, cells: &mut Vec<Recorded<'a>>) {
    for (table, list) in tables.as_object().into_iter().flatten() {
        let list = list.as_array().into_iter().flatten().filter_map(Value::as_array);
        cells.extend(list.map(|fields| recorded(table, fields)));
    }
}

fn recorded<'a>(table: &'a str, fields: &'a [Value]) -> Recorded<'a> {
    let text = |at: usize| fields.get(at).and_then(Value::as_str).unwrap_or_default();
    let bytes = |text: &str| -> Bytes {
        match text.strip_prefix("text:") {
            Some(json) => Bytes::copy_from_slice(json.as_bytes()),
            // Placeholder of a random UID.
            None => hex(&text.replace("RRRRRR", "A5A5A5")).into(),
        }
    };
    Recorded {
        table,
        row: bytes(text(0)),
        family: text(1),
        qualifier: bytes(text(2)),
        value: bytes(text(3)),
    }
}

fn read(case: &Case<'_>, cell: &Recorded<'_>) -> Result<String, String> {
    let family = Family::from_name(cell.family.as_bytes()).ok_or("no family")?;
    match cell.table {
        "uid" => read_uid(case, cell, family),
        "meta" => read_meta(cell),
        "tree" => read_tree(cell),
        _ => read_data(case, cell),
    }
}

fn same(cell: &Recorded<'_>, written: &[u8]) -> Result<(), String> {
    if cell.value == written { Ok(()) } else { Err("not the bytes we write".to_owned()) }
}

fn read_uid(case: &Case<'_>, cell: &Recorded<'_>, family: Family) -> Result<String, String> {
    let read = UidCell::decode(&case.schema, &cell.row, family, &cell.qualifier, &cell.value);
    let read = read.map_err(|e| e.to_string())?;
    let (row, family, qualifier, value) = read.encode();
    same(cell, &value)?;
    let place = (cell.row.clone(), cell.family, cell.qualifier.as_ref());
    assert_eq!((row, family.as_str(), qualifier.as_bytes()), place);
    Ok(match read {
        UidCell::Counter(..) => "counter",
        UidCell::Forward(..) => "forward mapping",
        UidCell::Reverse(..) => "reverse mapping",
        UidCell::Meta(..) => "UIDMeta",
    }
    .to_owned())
}

fn read_meta(cell: &Recorded<'_>) -> Result<String, String> {
    if cell.qualifier == "ts_ctr" {
        return decode_counter(&cell.value).map(|_| "counter".to_owned()).ok_or("length".into());
    }
    let meta = TsMeta::from_json(&cell.value).map_err(|e| e.to_string())?;
    same(cell, meta.to_json().as_bytes())?;
    assert_eq!(meta.tsuid, to_hex(&cell.row));
    Ok("TSMeta".to_owned())
}

fn read_tree(cell: &Recorded<'_>) -> Result<String, String> {
    let column = TreeColumn::decode(&cell.qualifier).ok_or("column")?;
    assert_eq!(column.qualifier(), cell.qualifier);
    let json = |e: tsd_model::JsonError| e.to_string();
    let (kind, written) = match column {
        TreeColumn::Definition => {
            ("definition", TreeDefinition::from_json(&cell.value).map_err(json)?.to_json())
        }
        TreeColumn::Branch => {
            let branch = Branch::from_json(&cell.value).map_err(json)?;
            let below: Vec<_> = branch.path.iter().skip(1).collect();
            let hashes = cell.row.get(2..).unwrap_or_default();
            let tree = tsd_model::TreeId::try_new(1).ok_or("tree")?;
            assert_eq!(tree.branch_row(&below).get(2..), Some(hashes));
            ("branch", branch.to_json())
        }
        TreeColumn::Leaf(_) => {
            let leaf = Leaf::from_json(&cell.value).map_err(json)?;
            assert_eq!(column, TreeColumn::leaf(&leaf.display_name));
            ("leaf", leaf.to_json())
        }
        TreeColumn::Rule { .. } => {
            // The order of some fields is not fixed, so rules are compared as objects.
            let rule = TreeRule::from_json(&cell.value).map_err(json)?.to_json();
            let object = |bytes: &[u8]| -> Option<Value> { serde_json::from_slice(bytes).ok() };
            assert_eq!(object(rule.as_bytes()), object(&cell.value));
            return Ok("rule".to_owned());
        }
        TreeColumn::Collision(_) => return Ok("collision".to_owned()),
        TreeColumn::NotMatched(_) => return Ok("not matched".to_owned()),
    };
    same(cell, written.as_bytes())?;
    Ok(kind.to_owned())
}

fn read_data(case: &Case<'_>, cell: &Recorded<'_>) -> Result<String, String> {
    let row = RowKey::decode(&case.schema, &cell.row).map_err(|e| e.to_string())?;
    if !row.is_global() {
        let series = SeriesKey::from_row_key(&case.schema, &cell.row).map_err(|e| e.to_string())?;
        if series.row_key(row.base_time()) != cell.row {
            return Err("row key under another salt".to_owned());
        }
    }
    // In a rollup table an odd length is a rollup; ids overlap with the other prefixes.
    if case.file == "rollups" && cell.qualifier.len() % 2 == 1 || cell.qualifier.contains(&b':') {
        return read_rollup(cell);
    }
    let kind = ColumnKind::of(&cell.qualifier);
    match kind {
        ColumnKind::Point => {
            let mut reader =
                PointReader::new(&cell.qualifier, &cell.value).map_err(|e| e.to_string())?;
            let point = reader.next_point().map_err(|e| e.to_string())?.ok_or("no point")?;
            point.point_value().map_err(|e| e.to_string())?;
            if reader.was_fixed() || !reader.tail().is_empty() {
                return Err("not stored as it should be".to_owned());
            }
            same(cell, point.value)?;
        }
        ColumnKind::Compacted => {
            let points = read_points_strictly(&cell.qualifier, &cell.value);
            let points = points.map_err(|e| e.to_string())?;
            let (qualifier, value) = encode_column(&points);
            assert_eq!(qualifier, cell.qualifier);
            same(cell, &value)?;
        }
        ColumnKind::Append => {
            let points = AppendedPoints::decode(&cell.value).map_err(|e| e.to_string())?;
            if points.needs_repair() {
                return Ok("Append, to be repaired".to_owned());
            }
            same(cell, &points.repaired_value())?;
        }
        ColumnKind::Annotation => {
            let note = Annotation::from_json(&cell.value).map_err(|e| e.to_string())?;
            let place = AnnotationKey::of(note.start_time).map_err(|e| e.to_string())?;
            assert_eq!(
                (place.base, place.qualifier.as_slice()),
                (row.base_time(), &*cell.qualifier)
            );
            same(cell, note.to_json().as_bytes())?;
        }
        ColumnKind::Histogram => {
            let offset = histogram_offset_ms(&cell.qualifier).ok_or("qualifier")?;
            assert!(offset < 3_600_000);
            let (id, read) = SimpleHistogram::decode(&cell.value).map_err(|e| e.to_string())?;
            same(cell, &read.encode(id).map_err(|e| e.to_string())?)?;
        }
        ColumnKind::BadAppend | ColumnKind::Unknown => return Err(format!("{kind:?} column")),
    }
    Ok(format!("{kind:?}"))
}

fn read_rollup(cell: &Recorded<'_>) -> Result<String, String> {
    let qualifier = RollupQualifier::decode(&cell.qualifier).ok_or("no rollup qualifier")?;
    assert_eq!(qualifier.encode()[..], cell.qualifier);
    let value = PointValue::decode(qualifier.flags, &cell.value).map_err(|e| e.to_string())?;
    same(cell, &value.encode().1)?;
    Ok("rollup".to_owned())
}

#[test]
fn every_row_reads_the_same_before_and_after_row_compaction() {
    let (mut rows, mut points) = (0, 0);
    let mut unreadable = BTreeSet::new();
    for file in FILES.into_iter().filter(|file| *file != "rollups") {
        let recorded = load(&format!("golden/{file}.json"));
        for case in recorded.as_array().into_iter().flatten() {
            let setting = |key: &str| case.at("config").get(key).and_then(Value::as_str);
            let rule = MergeRule::from_settings(
                setting("tsd.storage.fix_duplicates") == Some("true"),
                setting("tsd.storage.use_otsdb_timestamp") == Some("true"),
                setting("tsd.storage.use_max_value") != Some("false"),
            );
            for row in rows_of(case) {
                let schema = case_schema(case);
                let Ok(base) = RowKey::decode(&schema, &row.key).map(|k| k.base_time()) else {
                    continue;
                };
                match columns_and_compacted(&row, base, rule) {
                    Ok((before, after)) => {
                        assert_eq!(before, after, "{}", case.text("name"));
                        rows += 1;
                        points += before.len();
                    }
                    Err(error) => {
                        let why = match error {
                            RowError::Duplicate { offset_ms, .. } => {
                                format!("two values at {offset_ms} ms")
                            }
                            error => error.to_string(),
                        };
                        unreadable.insert(format!("{file}: {}: {why}", case.text("name")));
                    }
                }
            }
        }
    }
    println!("{rows} rows with {points} points");
    for line in &unreadable {
        println!("    {line:?},");
    }
    assert_eq!(unreadable, UNREADABLE.iter().map(|line| (*line).to_owned()).collect());
}

/// Rows of the data table at the end of a case.
fn rows_of(case: &Value) -> Vec<Row> {
    let mut rows: BTreeMap<Bytes, Vec<Cell>> = BTreeMap::new();
    let cells = case.at("tables").get("data").and_then(Value::as_array);
    for fields in cells.into_iter().flatten().filter_map(Value::as_array) {
        let cell = recorded("data", fields);
        let row = rows.entry(cell.row).or_default();
        row.push(Cell {
            family: Family::T,
            qualifier: cell.qualifier,
            value: cell.value,
            timestamp_ms: fields.get(4).and_then(Value::as_i64).unwrap_or(0),
        });
    }
    rows.into_iter().map(|(key, cells)| Row::from_cells(key, cells)).collect()
}

fn columns_and_compacted(
    row: &Row,
    base: BaseTime,
    rule: MergeRule,
) -> Result<(PointColumns, PointColumns), RowError> {
    let decode = |row: &Row| {
        let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
        decode_row(row, base, rule, &mut columns, &mut extras).map(|()| columns)
    };
    let before = decode(row)?;
    let plan = plan_row_compaction(&row.key, &row.cells, rule)?;
    let compacted = Row::from_cells(row.key.clone(), plan.result.into_iter().collect());
    Ok((before, decode(&compacted)?))
}
