//! Cases that record a defect of the original: what the tables hold without it.

use serde_json::Value;

use super::case::{Case, GoldenCell, Step, Tables, hex};

/// Names with a letter that the tables can only keep as a question mark. They are refused.
const REFUSED_NAMES: [&str; 3] = [
    "letters above latin-1 become ?",
    "two such names in one server",
    "such a name and a real question mark",
];

/// Rows with a value of a length that no point has. The original writes it back before it notices;
/// the right answer is to refuse the row and leave it.
const REFUSED_ROWS: [&str; 2] = ["bad length flags", "empty value"];

/// Puts the right cells in the place of those a defect left.
pub(crate) fn mend(case: &mut Case) {
    if case.name.contains("(defect D7)") {
        let steps = case.steps.iter_mut().filter_map(|step| match step {
            Step::Tables(tables) => Some(tables),
            _ => None,
        });
        for tables in steps.chain([&mut case.tables]) {
            tables.values_mut().flatten().for_each(mend_tail);
        }
    }
    match case.name.as_str() {
        // Rows of more slots than their twelve bits tell apart.
        "slots from 4096 on wrap (defect D10)" => case.refused = true,
        // One interval of its settings is like that, and nothing is put there.
        "aggregator id 42, other spans" => drop_interval(case, "2h"),
        // The original puts what it merged of one table into another.
        "read of a pre-aggregate compacts into the main table (defect D4)" => {
            case.tables.insert("data".to_owned(), Vec::new());
        }
        // The original gives such rows up.
        "background compaction of a row with an annotation (defect D5)" => compact_two_points(case),
        "edit of json written by another program" => edit_foreign_note(case),
        _ => {}
    }
    if case.topic == "uid" && REFUSED_NAMES.contains(&case.name.as_str()) {
        refuse(case, "/api/", &["data", "uid"]);
    }
    if case.topic == "compaction" && REFUSED_ROWS.contains(&case.name.as_str()) {
        refuse(case, "/api/query", &["data"]);
    }
}

fn drop_interval(case: &mut Case, dropped: &str) {
    const KEY: &str = "tsd.rollups.config";
    let text = case.config.get(KEY).expect("a configuration of rollups");
    let mut config: Value = serde_json::from_str(text).expect("JSON");
    let intervals = config["intervals"].as_array_mut().expect("intervals");
    intervals.retain(|interval| interval["interval"] != dropped);
    case.config.insert(KEY.to_owned(), config.to_string());
}

/// Puts the one column of two points in the place of their two.
fn compact_two_points(case: &mut Case) {
    let cells = case.tables.get_mut("data").expect("points");
    let second = cells.remove(1);
    let first = &mut cells[0];
    first.qualifier += &second.qualifier;
    first.value = format!("{}{}00", first.value, second.value);
}

/// The original compares what it would have written, and so never edits what others wrote. What is
/// compared here are the bytes that were read.
fn edit_foreign_note(case: &mut Case) {
    for step in &mut case.steps {
        if let Step::Http { status, reply, .. } = step {
            *status = 200;
            let note = r#"{"tsuid":"","description":"a b","notes":"n","startTime":1356998400,"endTime":0}"#;
            note.clone_into(reply);
        }
    }
    for cell in case.tables.values_mut().flatten() {
        let json =
            r#"{"startTime":1356998400,"endTime":0,"description":"a b","notes":"n","custom":null}"#;
        cell.value = hex(json.as_bytes());
    }
}

/// The last byte of a compacted column says whether its points are of both resolutions.
fn mend_tail(cell: &mut GoldenCell) {
    let Some((points, mixed)) = count_points(&cell.qualifier) else { return };
    if points > 1 {
        cell.value.truncate(cell.value.len() - 2);
        cell.value += if mixed { "01" } else { "00" };
    }
}

/// Points of a qualifier in hexadecimal, and whether some are in seconds and some in milliseconds.
fn count_points(mut qualifier: &str) -> Option<(usize, bool)> {
    let (mut secs, mut millis) = (0, 0);
    while !qualifier.is_empty() {
        let is_ms = qualifier.starts_with('F');
        *(if is_ms { &mut millis } else { &mut secs }) += 1;
        qualifier = qualifier.get(if is_ms { 8 } else { 4 }..)?;
    }
    Some((secs + millis, secs > 0 && millis > 0))
}

/// Requests below `path` fail; the tables keep what was planted, and nothing comes to it.
fn refuse(case: &mut Case, path: &str, tables: &[&str]) {
    let mut tables: Tables = tables.iter().map(|&name| (name.to_owned(), Vec::new())).collect();
    for step in &mut case.steps {
        match step {
            Step::Http { uri, status, .. } if uri.starts_with(path) => *status = 400,
            Step::Plant(cells) => {
                for (table, cell) in cells {
                    tables.entry(table.clone()).or_default().push(cell.clone());
                }
            }
            _ => {}
        }
    }
    for cells in tables.values_mut() {
        cells.sort();
    }
    case.tables = tables;
}
