//! Cases that record a defect of the original: what the tables hold without it.

use super::case::{Case, GoldenCell, Step, Tables};

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
    if case.topic == "uid" && REFUSED_NAMES.contains(&case.name.as_str()) {
        refuse(case, "/api/", &["data", "uid"]);
    }
    if case.topic == "compaction" && REFUSED_ROWS.contains(&case.name.as_str()) {
        refuse(case, "/api/query", &["data"]);
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
