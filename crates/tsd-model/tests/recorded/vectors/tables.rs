//! Vectors of the UID, meta and tree tables.

use bytes::Bytes;
use serde_json::Value;
use tsd_model::{
    Branch, Family, Leaf, MetricUid, TS_COUNTER_QUALIFIER, TS_META_QUALIFIER, TreeColumn,
    TreeDefinition, TreeId, TreeRule, TreeRuleKind, TsMeta, Uid, UidCell, UidKind, UidMeta,
    encode_counter, encode_latin1, encode_latin1_lossy, to_hex,
};

use crate::support::{Fields, uid};

pub(super) fn uid_table(id: &str, input: &Value, expected: &Value) {
    match id {
        "u-01" | "u-02" => {
            let kind = UidKind::from_name(input.text("kind")).unwrap_or_else(|| panic!("{input}"));
            let width = input.get("width").and_then(Value::as_u64).unwrap_or(3);
            let uid = Uid::from_number(1, usize::try_from(width).unwrap_or(0));
            let uid = uid.unwrap_or_else(|e| panic!("{e}"));
            let name = encode_latin1(input.text("name")).unwrap_or_else(|e| panic!("{e}"));
            let name = Bytes::from(name);
            let cells = [
                UidCell::Counter(kind, 1),
                UidCell::Reverse(kind, uid, name.clone()),
                UidCell::Forward(kind, name, uid),
            ];
            for (cell, step) in cells.iter().zip(expected.list("steps")) {
                let (row, family, qualifier, value) = cell.encode();
                assert_eq!(to_hex(&row), step.text("row"));
                assert_eq!(family.as_str(), step.text("family"));
                assert_eq!(qualifier, step.text("qualifier"));
                let field = if step.text("op") == "increment" { "stored" } else { "value" };
                assert_eq!(to_hex(&value), step.text(field));
            }
            assert_eq!(expected.list("steps").len(), cells.len());
        }
        "u-03" => {
            for (name, bytes) in input.list("names").iter().zip(expected.list("bytes")) {
                let stored = encode_latin1_lossy(name.as_str().unwrap_or(""));
                assert_eq!(Some(to_hex(&stored).as_str()), bytes.as_str());
            }
        }
        "u-04" => {
            let numbers = input.list("counter_after_increment").iter().filter_map(Value::as_u64);
            for (number, wanted) in numbers.zip(expected.list("uid")) {
                let uid = Uid::from_number(number, 3).map(|uid| uid.to_string());
                let uid = uid.unwrap_or_else(|_| "error: all ids assigned".to_owned());
                assert_eq!(Some(uid.as_str()), wanted.as_str());
            }
        }
        "u-05" => {
            let meta = UidMeta::new(UidKind::Metric, input.int("created"));
            let uid: MetricUid = uid(input.text("uid"));
            let cell = UidCell::Meta(UidKind::Metric, uid.uid(), meta);
            let (row, family, qualifier, value) = cell.encode();
            assert_eq!(to_hex(&row), expected.text("row"));
            assert_eq!(family.as_str(), expected.text("family"));
            assert_eq!(qualifier, expected.text("qualifier"));
            assert_eq!(to_hex(&value), expected.text("value"));
        }
        "u-06" => {
            let uid = Uid::parse_hex(input.text("hex"), 3).map(|uid| uid.to_string());
            assert_eq!(uid.as_deref(), Ok(expected.text("uid")));
        }
        _ => panic!("nobody handles {id}"),
    }
}

pub(super) fn meta(id: &str, input: &Value, expected: &Value) {
    match id {
        "m-01" => {
            let meta = TsMeta::new(input.text("tsuid"), input.int("created"));
            assert_eq!(meta.to_json(), expected.text("text"));
            assert_eq!(TS_META_QUALIFIER, expected.text("qualifier"));
            assert_eq!(Family::Name.as_str(), expected.text("family"));
        }
        "m-02" => {
            let keys = input.list("custom_keys").iter().filter_map(Value::as_str);
            let meta = TsMeta {
                custom: Some(keys.map(|k| (k.to_owned(), Some("v".to_owned()))).collect()),
                max: input.at("max").as_f64().unwrap_or(f64::NAN),
                min: input.at("min").as_f64().unwrap_or(f64::NAN),
                retention: input.int("retention"),
                ..TsMeta::new("000001000001000001", 1_356_998_400)
            };
            assert_eq!(meta.to_json(), expected.text("text"));
        }
        "m-03" => {
            assert_eq!(TS_COUNTER_QUALIFIER, expected.text("qualifier"));
            assert_eq!(to_hex(&encode_counter(1)), expected.text("tracking_only"));
            assert_eq!(to_hex(&encode_counter(5)), expected.text("incremented_5"));
        }
        _ => panic!("nobody handles {id}"),
    }
}

pub(super) fn tree(id: &str, input: &Value, expected: &Value) {
    let number = input.get("tree").and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok());
    let tree = TreeId::try_new(number.unwrap_or(1)).unwrap_or_else(|| panic!("{input}"));
    let names = |key: &str| -> Vec<String> {
        input.list(key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    match id {
        "t-01" => assert_eq!(to_hex(&tree.row()), expected.text("row")),
        "t-02" | "t-03" | "t-04" => {
            assert_eq!(to_hex(&tree.branch_row(&names("path"))), expected.text("row"));
        }
        "t-05" => {
            let display_name = input.text("display_name").to_owned();
            let column = TreeColumn::leaf(&display_name).qualifier();
            assert_eq!(to_hex(&column), expected.text("qualifier"));
            let leaf = Leaf { display_name, tsuid: input.text("tsuid").to_owned() };
            assert_eq!(leaf.to_json(), expected.text("text"));
        }
        "t-06" => {
            let path = names("path");
            let display_name = path.last().cloned().unwrap_or_default();
            assert_eq!(Branch { path, display_name }.to_json(), expected.text("text"));
            assert_eq!(to_hex(&TreeColumn::Branch.qualifier()), expected.text("qualifier"));
        }
        "t-07" => {
            let definition = TreeDefinition {
                name: input.text("name").to_owned(),
                created: input.int("created"),
                ..TreeDefinition::default()
            };
            assert_eq!(definition.to_json(), expected.text("text"));
            assert_eq!(to_hex(&TreeColumn::Definition.qualifier()), expected.text("qualifier"));
        }
        "t-08" => {
            let part = |key: &str| u32::try_from(input.int(key)).unwrap_or(0);
            let column = TreeColumn::Rule { level: part("level"), order: part("order") };
            assert_eq!(to_hex(&column.qualifier()), expected.text("qualifier"));
        }
        "t-09" => {
            let kind = TreeRuleKind::from_name(input.text("type"));
            let rule = TreeRule {
                kind: kind.unwrap_or_else(|| panic!("{input}")),
                field: input.text("field").to_owned(),
                tree_id: 1,
                ..TreeRule::default()
            };
            assert_eq!(rule.to_json(), expected.text("text"));
        }
        "t-10" => {
            let tsuid = input.hex("tsuid");
            let columns = [
                ("collision", tree.collisions_row(), TreeColumn::Collision(tsuid.clone())),
                ("not_matched", tree.not_matched_row(), TreeColumn::NotMatched(tsuid)),
            ];
            for (name, row, column) in columns {
                assert_eq!(to_hex(&row), expected.at(name).text("row"));
                assert_eq!(to_hex(&column.qualifier()), expected.at(name).text("qualifier"));
            }
        }
        _ => panic!("nobody handles {id}"),
    }
}
