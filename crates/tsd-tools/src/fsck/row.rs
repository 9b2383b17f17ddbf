//! Checks the cells of one row and plans its repairs. It reads and writes nothing.
//!
//! The texts are OpenTSDB's. Three of its defects are left out (storage.md, D1 to D3): an integer that needs its eight
//! bytes stays, a compacted column without the trailing byte is valid, and a compacted column whose first point is 80
//! s into the hour is not an append column.

use std::{collections::BTreeMap, fmt::Write as _};

use bytes::Bytes;
use jiff::Timestamp;
use tsd_model::{
    AppendedPoints, BaseTime, Cell, ColumnKind, Family, Flags, PointValue, Qualifier,
    ReplacedColumn, StoredPoint, Value, encode_column, java_byte_list, java_double, superseded_ms,
    to_hex,
};

use super::{
    options::{FsckLevel, FsckOptions},
    report::FsckReport,
};

/// Severity and text of a finding, for the operator.
pub(crate) type Finding = (FsckLevel, String);

/// The writes that repair a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowRepairs {
    /// New columns. They must be put before any column is deleted.
    pub(crate) put: Vec<Cell>,
    /// The column with all points of the row.
    pub(crate) compacted: Option<Cell>,
    /// [`superseded_ms`] of the compacted column.
    pub(crate) superseded_ms: Option<i64>,
    /// Columns to delete.
    pub(crate) delete: Vec<ReplacedColumn>,
    /// Cells with their new values. A cell that was changed meanwhile stays.
    pub(crate) replace: Vec<(Cell, Bytes)>,
}

impl RowRepairs {
    pub(crate) const fn is_nothing(&self) -> bool {
        self.put.is_empty()
            && self.compacted.is_none()
            && self.delete.is_empty()
            && self.replace.is_empty()
    }

    fn delete(&mut self, cell: &Cell) {
        let Cell { family, qualifier, timestamp_ms, .. } = cell;
        if self.delete.iter().all(|deleted| deleted.qualifier != *qualifier) {
            let (family, qualifier, timestamp_ms) = (*family, qualifier.clone(), *timestamp_ms);
            self.delete.push(ReplacedColumn { family, qualifier, timestamp_ms });
        }
    }
}

/// Longest qualifier, in bytes, that is printed with each point of its column. Printing longer qualifiers would make
/// the output grow with the square of the points.
const MAX_SHOWN_QUALIFIER: usize = 64;

/// A point of a column.
#[derive(Clone, Copy, Debug)]
struct RowPoint<'a> {
    cell: &'a Cell,
    qualifier: Qualifier,
    value: &'a [u8],
    /// True if the column has other points too.
    is_compacted: bool,
}

impl RowPoint<'_> {
    fn is_of_long_column(&self) -> bool {
        self.cell.qualifier.len() > MAX_SHOWN_QUALIFIER
    }

    /// The qualifier of the column, as OpenTSDB prints it; for a long column, only the bytes of the point.
    fn show_qualifier(&self) -> String {
        let length = self.cell.qualifier.len();
        if self.is_of_long_column() {
            let own = java_byte_list(self.qualifier.as_bytes());
            return format!("{own} of a column of {length} bytes");
        }
        java_byte_list(&self.cell.qualifier)
    }
}

/// Result of checking a value against its flags, with the corrected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueCheck<'a> {
    /// Valid, with these flags and bytes.
    Valid(Flags, &'a [u8]),
    /// Valid, and fits these shorter flags and bytes.
    Long(Flags, &'a [u8]),
    /// A single-precision value on eight bytes.
    Encoding(&'a [u8]),
    /// Unreadable.
    Bad,
}

/// The check of one row.
pub(crate) struct RowCheck<'a> {
    options: &'a FsckOptions,
    repair_appends: bool,
    key: &'a Bytes,
    base: BaseTime,
    report: FsckReport,
    findings: Vec<Finding>,
    repairs: RowRepairs,
    points: BTreeMap<u32, Vec<RowPoint<'a>>>,
    has_compacted: bool,
}

impl<'a> RowCheck<'a> {
    /// Checks the cells of a row with a valid key. Returns the findings, and the writes that repair the row.
    pub(crate) fn run(
        options: &'a FsckOptions,
        repair_appends: bool,
        key: &'a Bytes,
        base: BaseTime,
        cells: &'a [Cell],
    ) -> (FsckReport, Vec<Finding>, RowRepairs, bool) {
        let mut check = Self {
            options,
            repair_appends,
            key,
            base,
            report: FsckReport::default(),
            findings: Vec::new(),
            repairs: RowRepairs::default(),
            points: BTreeMap::new(),
            has_compacted: false,
        };
        for cell in cells.iter().filter(|cell| cell.family == Family::T) {
            check.report.cells += 1;
            check.column(cell);
        }
        let has_points = !check.points.is_empty();
        if has_points {
            check.all_points();
        }
        let repairs = &mut check.repairs;
        repairs.superseded_ms =
            repairs.compacted.as_ref().and_then(|put| superseded_ms(cells, put));
        (check.report, check.findings, check.repairs, has_points)
    }

    fn find(&mut self, level: FsckLevel, text: impl Into<String>) {
        self.findings.push((level, text.into()));
    }

    fn column(&mut self, cell: &'a Cell) {
        match ColumnKind::of(&cell.qualifier) {
            ColumnKind::Annotation => self.report.annotations += 1,
            ColumnKind::Append => self.append_column(cell),
            ColumnKind::Point => {
                if let Some(qualifier) = Qualifier::decode(&cell.qualifier) {
                    self.point(RowPoint {
                        cell,
                        qualifier,
                        value: &cell.value,
                        is_compacted: false,
                    });
                }
            }
            ColumnKind::Compacted => self.compacted_column(cell),
            ColumnKind::BadAppend | ColumnKind::Histogram | ColumnKind::Unknown => {
                self.unknown_column(cell);
            }
        }
    }

    fn unknown_column(&mut self, cell: &Cell) {
        let text = match cell.qualifier.len() {
            3 | 5 => {
                let text = "Found an object possibly from a future version of OpenTSDB";
                self.find(FsckLevel::Warn, format!("{text}\n\t{}", self.show(cell)));
                self.report.future_objects += 1;
                return;
            }
            0 | 1 => "Invalid qualifier, must be on 2 bytes or more.",
            _ => "Unknown qualifier, must be 2, 3, 5 or an even number of bytes.",
        };
        self.report.unknown_columns += 1;
        self.find(FsckLevel::Error, format!("{text}\n\t{}", self.show(cell)));
        if self.options.fix && self.options.delete_unknown_columns {
            self.repairs.delete(cell);
            self.report.unknown_columns_deleted += 1;
        }
    }

    fn append_column(&mut self, cell: &Cell) {
        match AppendedPoints::decode(&cell.value) {
            Ok(points) if self.repair_appends && points.needs_repair() => {
                let repaired = points.repaired_value().into();
                self.repairs.replace.push((cell.clone(), repaired));
            }
            Ok(_) => {}
            Err(error) => {
                self.report.bad_columns += 1;
                self.find(FsckLevel::Error, format!("{error}\n\t{}", self.show(cell)));
                if self.options.fix && self.options.delete_bad_compacts {
                    self.repairs.delete(cell);
                    self.report.bad_columns_deleted += 1;
                }
            }
        }
    }

    fn point(&mut self, point: RowPoint<'a>) {
        self.points.entry(point.qualifier.offset_ms()).or_default().push(point);
    }

    fn compacted_column(&mut self, cell: &'a Cell) {
        let points = match split(cell) {
            Ok(points) => points,
            Err(SplitError::Tail) => {
                self.report.bad_columns += 1;
                let text = "The last byte of a compacted should be 0 or 1. Either this value is corrupted or \
                            it was written by a future version of OpenTSDB.";
                self.find(FsckLevel::Error, format!("{text}\n\t{}", self.show(cell)));
                return;
            }
            Err(SplitError::Length { consumed, expected, points }) => {
                self.report.bad_columns += 1;
                let cells: Vec<_> = points.iter().map(show_point).collect();
                let text = format!(
                    "Corrupted value: couldn't break down into individual values (consumed {consumed} bytes, \
                     but was expecting to consume {expected}): {}, cells so far: [{}]",
                    self.show(cell),
                    cells.join(", ")
                );
                self.find(FsckLevel::Error, text);
                if self.options.fix && self.options.delete_bad_compacts {
                    self.repairs.delete(cell);
                    self.report.bad_columns_deleted += 1;
                }
                return;
            }
        };
        if !points.is_sorted_by_key(|point| point.qualifier.offset_ms()) {
            let text = "Compacted column was out of order or requires a fixup: ";
            self.find(FsckLevel::Error, format!("{text}{}", self.show(cell)));
            self.report.disordered_columns += 1;
        }
        self.has_compacted = true;
        for StoredPoint { qualifier, value } in points {
            self.point(RowPoint { cell, qualifier, value, is_compacted: true });
        }
    }

    /// Checks all values, and keeps one point of each instant.
    fn all_points(&mut self) {
        let is_rewritten = self.options.fix && (self.options.compact || self.has_compacted);
        let instants = std::mem::take(&mut self.points);
        let mut kept: Vec<StoredPoint<'a>> = Vec::with_capacity(instants.len());
        let (mut has_duplicates, mut has_bad_values) = (false, false);
        let mut resolved = 0;
        for (offset_ms, mut points) in instants.iter().map(|(at, points)| (*at, points.clone())) {
            if points.len() > 1 {
                points.sort_by_key(|point| point.cell.timestamp_ms);
                has_duplicates = true;
            }
            let last = points.len() - 1;
            let keep = if self.options.last_write_wins { last } else { 0 };
            let Some(point) = points.get(keep).copied() else { continue };
            self.report.valid_points += 1;
            // The short form could be a column of this instant that is deleted.
            let may_write = !is_rewritten && !point.is_compacted && last == 0;
            match self.value(&point, is_rewritten, may_write) {
                Some(valid) => kept.push(valid),
                None => has_bad_values = true,
            }
            if last == 0 {
                continue;
            }
            self.report.duplicates += last as u64;
            let text = self.show_duplicates(offset_ms, &points, keep);
            self.find(FsckLevel::Info, text);
            if self.options.fix && self.options.resolve_duplicates {
                resolved += last as u64;
                if !is_rewritten {
                    let others = points.iter().enumerate().filter(|(at, _)| *at != keep);
                    others.for_each(|(_, other)| self.repairs.delete(other.cell));
                }
            }
        }
        if (has_duplicates && !self.options.resolve_duplicates)
            || (has_bad_values && !self.options.delete_bad_values)
        {
            let text = "One or more errors found in row that were not marked for repair";
            self.find(FsckLevel::Warn, text);
            // Duplicates in columns of their own were deleted nevertheless.
            self.report.duplicates_resolved += if is_rewritten { 0 } else { resolved };
            return;
        }
        self.report.duplicates_resolved += resolved;
        if is_rewritten && !kept.is_empty() {
            self.rewrite(&kept, instants.values().flatten().map(|point| point.cell));
        }
    }

    /// Puts all points into one column with the timestamp of the newest column that it replaces.
    fn rewrite<'c>(&mut self, kept: &[StoredPoint<'_>], sources: impl Iterator<Item = &'c Cell>) {
        let (qualifier, value) = encode_column(kept);
        let (qualifier, value) = (Bytes::from(qualifier), Bytes::from(value));
        let (mut timestamp_ms, mut is_present) = (i64::MIN, false);
        for cell in sources {
            timestamp_ms = timestamp_ms.max(cell.timestamp_ms);
            if cell.qualifier == qualifier {
                is_present = cell.value == value;
            } else {
                self.repairs.delete(cell);
            }
        }
        if !is_present {
            let cell = Cell { family: Family::T, qualifier, value, timestamp_ms };
            self.repairs.compacted = Some(cell);
        }
    }

    /// The point in the form in which it is kept; `None` if its value is unreadable.
    fn value(
        &mut self,
        point: &RowPoint<'a>,
        is_rewritten: bool,
        may_write: bool,
    ) -> Option<StoredPoint<'a>> {
        let kept =
            |flags, value| StoredPoint { qualifier: point.qualifier.with_flags(flags), value };
        let flags = point.qualifier.flags();
        match self.check_value(point) {
            ValueCheck::Valid(flags, value) => Some(kept(flags, value)),
            ValueCheck::Long(short, value) => {
                self.report.long_integers += 1;
                if is_rewritten || (may_write && self.options.fix) {
                    self.report.long_integers_shortened += 1;
                    self.report.bytes_saved += (point.value.len() - value.len()) as u64;
                }
                if may_write && self.options.fix {
                    let shortened = kept(short, value);
                    self.repairs.put.push(Cell {
                        family: Family::T,
                        qualifier: Bytes::copy_from_slice(shortened.qualifier.as_bytes()),
                        value: Bytes::copy_from_slice(value),
                        timestamp_ms: point.cell.timestamp_ms,
                    });
                    self.repairs.delete(point.cell);
                }
                Some(kept(short, value))
            }
            ValueCheck::Encoding(value) => {
                self.report.encodings += 1;
                if is_rewritten || (may_write && self.options.fix) {
                    self.report.encodings_fixed += 1;
                }
                if may_write && self.options.fix {
                    let value = Bytes::copy_from_slice(value);
                    self.repairs.replace.push((point.cell.clone(), value));
                }
                Some(kept(flags, value))
            }
            ValueCheck::Bad => {
                self.report.bad_values += 1;
                if self.options.fix && self.options.delete_bad_values {
                    self.repairs.delete(point.cell);
                    self.report.bad_values_deleted += 1;
                }
                None
            }
        }
    }

    fn check_value(&mut self, point: &RowPoint<'a>) -> ValueCheck<'a> {
        let (flags, value) = (point.qualifier.flags(), point.value);
        let (level, text, check) = match (flags.value_len(), value) {
            (length, _) if !flags.is_float() => {
                if value.len() == length && flags.is_valid() {
                    return shortest(flags, value);
                }
                let text = if value.len() == length {
                    format!("The integer value is {length} bytes long, which no integer is.")
                } else {
                    let actual = value.len();
                    format!(
                        "The integer value is {actual} bytes long but should be {length} bytes."
                    )
                };
                (FsckLevel::Error, text, ValueCheck::Bad)
            }
            (4, [0xFF, 0xFF, 0xFF, 0xFF, rest @ ..])
                if value.len() == 8 && !point.qualifier.is_millis() =>
            {
                let text = "Floating point value with 0xFF most significant bytes, probably caused by sign \
                            extension bug present in revisions [96908436..607256fc].";
                (FsckLevel::Error, text.to_owned(), ValueCheck::Encoding(rest))
            }
            (4, [0, 0, 0, 0, rest @ ..]) if value.len() == 8 && !point.qualifier.is_millis() => {
                let text =
                    "Floating point value was marked as 4 bytes long but was actually 8 bytes long";
                (FsckLevel::Warn, text.to_owned(), ValueCheck::Encoding(rest))
            }
            (4, _) if value.len() == 8 => {
                let text = "Floating point value was marked as 4 bytes long but was actually 8 bytes long and \
                            the first four bytes were not zeroed";
                (FsckLevel::Error, text.to_owned(), ValueCheck::Bad)
            }
            (8, _) if value.len() == 4 => {
                let text =
                    "This floating point value was marked as 8 bytes long but was only 4 bytes.";
                (FsckLevel::Error, text.to_owned(), ValueCheck::Bad)
            }
            (length, _) if matches!(length, 4 | 8) && value.len() == length => {
                return ValueCheck::Valid(flags, value);
            }
            _ => {
                let text = format!(
                    "This floating point value must be encoded either on 4 or 8 bytes, but it's on {} bytes.",
                    value.len()
                );
                (FsckLevel::Error, text, ValueCheck::Bad)
            }
        };
        self.find(level, format!("{text}\n\t{}", self.show_point(point)));
        check
    }

    fn show_duplicates(&self, offset_ms: u32, points: &[RowPoint<'_>], keep: usize) -> String {
        let time_ms = self.base.as_millis() + i64::from(offset_ms);
        let date = Timestamp::from_millisecond(time_ms).map_or_else(
            |_| String::new(),
            |time| time.strftime("%a %b %d %H:%M:%S UTC %Y").to_string(),
        );
        let mut text = format!(
            "More than one column had a value for the same timestamp: ({time_ms} - {date})\n    row key: ({})\n",
            to_hex(self.key)
        );
        let others = points.iter().enumerate().filter(|(at, _)| *at != keep);
        let kept = points.get(keep).map(|point| (keep, point));
        let (first, last) = if self.options.last_write_wins { (None, kept) } else { (kept, None) };
        for (at, point) in first.into_iter().chain(others).chain(last) {
            let RowPoint { cell, is_compacted, .. } = point;
            let qualifier = point.show_qualifier();
            let end = match (at == keep, self.options.last_write_wins) {
                (true, false) => " <--- keep oldest".to_owned(),
                (true, true) => " <--- keep latest".to_owned(),
                (false, _) => format!(" value: {}", show_value(point)),
            };
            let at_ms = cell.timestamp_ms;
            let _ = writeln!(
                text,
                "    write time: ({at_ms})  compacted: ({is_compacted})  qualifier: {qualifier}{end}"
            );
        }
        text
    }

    fn show(&self, cell: &Cell) -> String {
        show_cell(self.key, cell)
    }

    /// The column of a point, as text; for a long column, only the bytes of the point.
    fn show_point(&self, point: &RowPoint<'_>) -> String {
        let RowPoint { cell, qualifier, value, .. } = point;
        if !point.is_of_long_column() {
            return self.show(cell);
        }
        let (qualifier, value) =
            (Bytes::copy_from_slice(qualifier.as_bytes()), Bytes::copy_from_slice(value));
        let shown = self.show(&Cell { qualifier, value, ..(*cell).clone() });
        format!("{shown} of a column of {} bytes", cell.qualifier.len())
    }
}

/// A cell as OpenTSDB prints it.
pub(crate) fn show_cell(key: &[u8], cell: &Cell) -> String {
    format!(
        "KeyValue(key={}, family={}, qualifier={}, value={}, timestamp={})",
        show_bytes(key),
        show_bytes(cell.family.as_str().as_bytes()),
        show_bytes(&cell.qualifier),
        show_bytes(&cell.value),
        cell.timestamp_ms
    )
}

/// Cause why a compacted column cannot be split.
enum SplitError<'a> {
    /// The trailing byte is invalid.
    Tail,
    /// The lengths in the qualifiers do not add up to the length of the values.
    Length { consumed: usize, expected: usize, points: Vec<StoredPoint<'a>> },
}

/// The points of a compacted column. A column that OpenTSDB's batch API wrote has no trailing byte.
fn split(cell: &Cell) -> Result<Vec<StoredPoint<'_>>, SplitError<'_>> {
    let (mut qualifiers, mut values) = (&cell.qualifier[..], &cell.value[..]);
    let mut points = Vec::new();
    let mut is_whole = true;
    while let Some((qualifier, rest)) = Qualifier::split_first(qualifiers) {
        let needed = qualifier.flags().value_len();
        let (value, left) = values.split_at_checked(needed).unwrap_or_else(|| {
            is_whole = false;
            (values, &[])
        });
        is_whole &= qualifier.flags().is_valid();
        points.push(StoredPoint { qualifier, value });
        (qualifiers, values) = (rest, left);
        if !is_whole {
            break;
        }
    }
    is_whole &= qualifiers.is_empty();
    let tail = cell.value.last().copied().unwrap_or_default();
    match values {
        [] | [0 | 1] if is_whole => Ok(points),
        _ if tail > 1 && tail.cast_signed() > 1 => Err(SplitError::Tail),
        _ => {
            let consumed = points.iter().map(|point| point.value.len()).sum();
            let expected = cell.value.len().saturating_sub(1);
            Err(SplitError::Length { consumed, expected, points })
        }
    }
}

/// The shortest form of an integer on eight bytes; other values stay unchanged.
fn shortest(flags: Flags, value: &[u8]) -> ValueCheck<'_> {
    let Ok(eight) = <[u8; 8]>::try_from(value) else { return ValueCheck::Valid(flags, value) };
    let integer = i64::from_be_bytes(eight);
    let length = match integer {
        _ if i8::try_from(integer).is_ok() => 1,
        _ if i16::try_from(integer).is_ok() => 2,
        _ if i32::try_from(integer).is_ok() => 4,
        _ => return ValueCheck::Valid(flags, value),
    };
    match (flags.with_len(length), value.get(8 - length..)) {
        (Some(short), Some(bytes)) => ValueCheck::Long(short, bytes),
        _ => ValueCheck::Valid(flags, value),
    }
}

fn show_point(point: &StoredPoint<'_>) -> String {
    let qualifier = java_byte_list(point.qualifier.as_bytes());
    format!("Cell({qualifier}, {})", java_byte_list(point.value))
}

/// A value as a double, as OpenTSDB prints it; its bytes if it cannot be decoded.
fn show_value(point: &RowPoint<'_>) -> String {
    match PointValue::decode(point.qualifier.flags(), point.value) {
        Ok(value) => java_double(match value.widen() {
            Value::Integer(integer) => integer as f64,
            Value::Float(float) => float,
        }),
        Err(_) => java_byte_list(point.value),
    }
}

/// Bytes as asynchbase prints them: quoted if half of them are printable ASCII, else a list.
fn show_bytes(bytes: &[u8]) -> String {
    let printable = bytes.iter().filter(|byte| matches!(byte, b' '..=b'~')).count();
    if printable < bytes.len() / 2 {
        return java_byte_list(bytes);
    }
    let mut text = String::from("\"");
    for &byte in bytes {
        match byte {
            b' '..=b'~' => text.push(char::from(byte)),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            _ => {
                let _ = write!(text, "\\x{byte:02X}");
            }
        }
    }
    text.push('"');
    text
}
