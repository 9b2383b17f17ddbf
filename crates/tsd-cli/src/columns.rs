//! Aligns texts in columns.

use std::fmt::Write as _;

/// Renders rows with aligned cells.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> Result<String, std::fmt::Error> {
    let width = |at: usize| {
        rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..N).map(|at| width(at).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:<width$}  ")?;
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(out)
}
