//! The lines of one row, as OpenTSDB's `scan` prints them.
//!
//! Some oddities of its output are kept because scripts read it. For example, the times of annotations are computed as
//! if their qualifiers were those of points. A column that OpenTSDB cannot read ends its scan; here it is an error of
//! that column.

use std::fmt::Write as _;

use jiff::{Timestamp, tz::TimeZone};
use tsd_model::{
    AppendedPoints, BaseTime, Cell, ColumnError, ColumnKind, PointValue, Qualifier, StoredPoint,
    UidKind, Value, decode_latin1, fix_up, java_byte_list, read_column, write_java_double,
};

/// Bits that are set only in timestamps in milliseconds.
const MILLIS_BITS: i64 = 0xFFFF_FFFF_0000_0000_u64.cast_signed();
/// First byte of the qualifiers of annotations.
const ANNOTATION_PREFIX: u8 = 1;

/// Tags of a row as names; an error if a UID has no name.
pub(super) type RowTags = Result<Vec<(String, String)>, UnnamedUidError>;

/// A UID has no name. The text is OpenTSDB's, with the class of its exception.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("net.opentsdb.uid.NoSuchUniqueId: No such unique ID for '{kind}': {}", java_byte_list(uid))]
pub(super) struct UnnamedUidError {
    pub(super) kind: UidKind,
    pub(super) uid: Vec<u8>,
}

/// Metric and tags of a row.
#[derive(Clone, Copy)]
pub(super) struct RowNames<'a> {
    pub(super) metric: &'a str,
    pub(super) tags: &'a RowTags,
}

/// A row to print.
pub(super) struct RowText<'a> {
    pub(super) key: &'a [u8],
    pub(super) base: BaseTime,
    pub(super) names: RowNames<'a>,
    pub(super) zone: &'a TimeZone,
}

impl RowText<'_> {
    /// `[key] METRIC BASE (DATE) {TAGK=TAGV, ...}`
    pub(super) fn raw_head(&self, out: &mut String) {
        let base = i64::from(self.base.as_secs());
        let (key, metric) = (java_byte_list(self.key), self.names.metric);
        let _ = write!(out, "{key} {metric} {base} ({}) ", self.date(base));
        match self.names.tags {
            Ok(tags) => {
                let tags: Vec<String> = tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
                let _ = writeln!(out, "{{{}}}", tags.join(", "));
            }
            Err(error) => {
                let _ = writeln!(out, "{error}");
            }
        }
    }

    /// The line of a column, and the lines of its points. An unreadable column has a line with its bytes.
    pub(super) fn raw_column(&self, cell: &Cell, out: &mut String) -> Result<(), ColumnError> {
        let qualifier = &cell.qualifier[..];
        let points = match ColumnKind::of(qualifier) {
            _ if is_object(qualifier) => {
                self.raw_object(cell, out);
                return Ok(());
            }
            ColumnKind::Point => match single(cell) {
                Ok(point) => {
                    out.push_str("  ");
                    self.raw_point(&point, out);
                    out.push('\n');
                    return Ok(());
                }
                Err(error) => Err(error),
            },
            _ => points(cell),
        };
        let (shown, value) = (java_byte_list(qualifier), java_byte_list(&cell.value));
        match points {
            Ok(points) => {
                let _ = write!(out, "  {shown}\t{value} = {} values:", points.len());
                for point in &points {
                    out.push_str("\n    ");
                    self.raw_point(point, out);
                }
                out.push('\n');
                Ok(())
            }
            Err(error) => {
                let _ = writeln!(out, "  {shown}\t{value}\t[Not readable]");
                Err(error)
            }
        }
    }

    /// ` TAGK=TAGV...`; an error if a UID has no name.
    pub(super) fn import_tags(&self) -> Result<String, &UnnamedUidError> {
        let tags = self.names.tags.as_ref()?;
        Ok(tags.iter().fold(String::new(), |mut out, (tagk, tagv)| {
            let _ = write!(out, " {tagk}={tagv}");
            out
        }))
    }

    /// A line for each point of a column: `METRIC TIME VALUE TAGK=TAGV ...`. Returns their number.
    pub(super) fn import_lines(
        &self,
        cell: &Cell,
        tags: &str,
        out: &mut String,
    ) -> Result<u64, ColumnError> {
        if is_object(&cell.qualifier) {
            return Ok(0);
        }
        let points = match ColumnKind::of(&cell.qualifier) {
            ColumnKind::Point => vec![single(cell)?],
            _ => points(cell)?,
        };
        // All points of a column, or none.
        let values: Vec<PointValue> =
            points.iter().map(StoredPoint::point_value).collect::<Result<_, _>>()?;
        for (point, value) in points.iter().zip(values) {
            let time = self.time(point.qualifier);
            let _ = write!(out, "{} {time} ", self.names.metric);
            push_value(value, out);
            out.push_str(tags);
            out.push('\n');
        }
        Ok(points.len() as u64)
    }

    /// `[qualifier] [value] OFFSET TYPE TIME (DATE)`, separated by tabs.
    fn raw_point(&self, point: &StoredPoint<'_>, out: &mut String) {
        let time = self.time(point.qualifier);
        let offset_ms = point.qualifier.offset_ms();
        let offset = if time & MILLIS_BITS == 0 { offset_ms / 1_000 } else { offset_ms };
        let _ = write!(
            out,
            "{}\t{}\t{offset}\t{}\t{time}\t({})",
            java_byte_list(point.qualifier.as_bytes()),
            java_byte_list(point.value),
            if point.qualifier.flags().is_float() { 'f' } else { 'l' },
            self.date(time)
        );
    }

    /// A column without points: an annotation, a histogram, or an unknown one.
    fn raw_object(&self, cell: &Cell, out: &mut String) {
        let value = java_byte_list(&cell.value);
        let (Some(&ANNOTATION_PREFIX), Some((at_start, _)), Some((after_prefix, _))) = (
            cell.qualifier.first(),
            Qualifier::split_first(&cell.qualifier),
            Qualifier::split_first(cell.qualifier.get(1..).unwrap_or_default()),
        ) else {
            let _ = writeln!(out, "  {value}\t[Not a data point]");
            return;
        };
        let time = self.base.as_millis() + i64::from(at_start.offset_ms());
        let json = match std::str::from_utf8(&cell.value) {
            Ok(json) => json.to_owned(),
            Err(_) => decode_latin1(&cell.value),
        };
        let _ = writeln!(
            out,
            "  {}\t{value}\t{}\t{json}\t{time}\t({})",
            java_byte_list(&cell.qualifier),
            after_prefix.offset_ms() / 1_000,
            self.date(time)
        );
    }

    /// Timestamp of a point, in its stored unit.
    fn time(&self, qualifier: Qualifier) -> i64 {
        if qualifier.is_millis() {
            self.base.as_millis() + i64::from(qualifier.offset_ms())
        } else {
            i64::from(self.base.as_secs()) + i64::from(qualifier.offset_ms() / 1_000)
        }
    }

    /// A date as Java prints it: `Tue Jan 01 00:00:00 UTC 2013`.
    fn date(&self, time: i64) -> String {
        let millis = if time & MILLIS_BITS == 0 { time * 1_000 } else { time };
        match Timestamp::from_millisecond(millis) {
            Ok(at) => {
                at.to_zoned(self.zone.clone()).strftime("%a %b %d %H:%M:%S %Z %Y").to_string()
            }
            Err(_) => millis.to_string(),
        }
    }
}

/// True for a column without points, which need not be decoded: its length is odd, and it is not an append column.
fn is_object(qualifier: &[u8]) -> bool {
    !qualifier.len().is_multiple_of(2) && ColumnKind::of(qualifier) != ColumnKind::Append
}

/// The only point of a column, with flags and value corrected as OpenTSDB does.
fn single(cell: &Cell) -> Result<StoredPoint<'_>, ColumnError> {
    let qualifier = Qualifier::decode(&cell.qualifier).ok_or(ColumnError::CutQualifier)?;
    if qualifier.is_millis() {
        return Ok(StoredPoint { qualifier, value: &cell.value });
    }
    Ok(fix_up(qualifier, &cell.value)?.0)
}

/// The points of a compacted column or an append column, in time order.
fn points(cell: &Cell) -> Result<Vec<StoredPoint<'_>>, ColumnError> {
    if ColumnKind::of(&cell.qualifier) == ColumnKind::Append {
        return Ok(AppendedPoints::decode(&cell.value)?.points().to_vec());
    }
    if ColumnKind::of(&cell.qualifier) != ColumnKind::Compacted {
        return Err(ColumnError::CutQualifier);
    }
    let mut points = Vec::new();
    read_column(&cell.qualifier, &cell.value, &mut points)?;
    points.sort_by_key(|point| point.qualifier.offset_ms());
    Ok(points)
}

/// A value in Java's notation. A single-precision value is widened, as in OpenTSDB; the importer reads the same value
/// from it.
fn push_value(value: PointValue, out: &mut String) {
    match value.widen() {
        Value::Integer(integer) => {
            let _ = write!(out, "{integer}");
        }
        Value::Float(float) => {
            let mut digits = Vec::with_capacity(24);
            write_java_double(float, &mut digits);
            out.push_str(&decode_latin1(&digits));
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_model::{Family, from_hex};

    use super::*;

    fn cell(column: &str) -> Cell {
        let (qualifier, value) = column.split_once('=').unwrap();
        let [qualifier, value] = [qualifier, value].map(|hex| from_hex(hex.as_bytes()).unwrap());
        let (qualifier, value) = (qualifier.into(), value.into());
        Cell { family: Family::T, qualifier, value, timestamp_ms: 1 }
    }

    fn tags() -> Vec<(String, String)> {
        vec![("host".to_owned(), "a".to_owned()), ("dc".to_owned(), "b".to_owned())]
    }

    fn raw(column: &str) -> String {
        let (tags, mut out) = (Ok(tags()), String::new());
        let _ = row(&tags).raw_column(&cell(column), &mut out);
        out
    }

    fn import(column: &str) -> String {
        let (tags, mut out) = (Ok(tags()), String::new());
        let _ = row(&tags).import_lines(&cell(column), " host=a", &mut out);
        out
    }

    static UTC: TimeZone = TimeZone::UTC;

    fn row(tags: &RowTags) -> RowText<'_> {
        RowText {
            key: &[0, 0, 1, 0x50, 0xE2, 0x27, 0x00, 0, 0, 1, 0, 0, 0xFE],
            base: BaseTime::containing(1_356_998_400),
            names: RowNames { metric: "m", tags },
            zone: &UTC,
        }
    }

    #[test]
    fn a_row_begins_with_its_key_and_its_names() {
        let head = |tags| {
            let mut out = String::new();
            row(&tags).raw_head(&mut out);
            out
        };
        let start = "[0, 0, 1, 80, -30, 39, 0, 0, 0, 1, 0, 0, -2] m 1356998400 \
                     (Tue Jan 01 00:00:00 UTC 2013) ";
        assert_eq!(head(Ok(tags())), format!("{start}{{host=a, dc=b}}\n"));
        assert_eq!(
            head(Err(UnnamedUidError { kind: UidKind::Tagv, uid: vec![0, 0, 0xFE] })),
            format!(
                "{start}net.opentsdb.uid.NoSuchUniqueId: No such unique ID for 'tagv': [0, 0, -2]\n"
            )
        );
    }

    #[test]
    fn every_kind_of_column_has_its_line() {
        for (column, expected) in [
            ("0010=2A", "  [0, 16]\t[42]\t1\tl\t1356998401\t(Tue Jan 01 00:00:01 UTC 2013)\n"),
            (
                "F000020B=40866666",
                "  [-16, 0, 2, 11]\t[64, -122, 102, 102]\t8\tf\t1356998400008\t(Tue Jan 01 00:00:00 \
                 UTC 2013)\n",
            ),
            // Flags and values that old versions wrote are corrected.
            (
                "001B=0000000040866666",
                "  [0, 27]\t[64, -122, 102, 102]\t1\tf\t1356998401\t(Tue Jan 01 00:00:01 UTC 2013)\n",
            ),
            (
                "00100000=040500",
                "  [0, 16, 0, 0]\t[4, 5, 0] = 2 values:\n    \
                 [0, 0]\t[5]\t0\tl\t1356998400\t(Tue Jan 01 00:00:00 UTC 2013)\n    \
                 [0, 16]\t[4]\t1\tl\t1356998401\t(Tue Jan 01 00:00:01 UTC 2013)\n",
            ),
            (
                "050000=000004",
                "  [5, 0, 0]\t[0, 0, 4] = 1 values:\n    \
                 [0, 0]\t[4]\t0\tl\t1356998400\t(Tue Jan 01 00:00:00 UTC 2013)\n",
            ),
            (
                "010020=7B7D",
                "  [1, 0, 32]\t[123, 125]\t2\t{}\t1356998416000\t(Tue Jan 01 00:00:16 UTC 2013)\n",
            ),
            ("060000=0102", "  [1, 2]\t[Not a data point]\n"),
            ("07=FF", "  [-1]\t[Not a data point]\n"),
            ("00030013=00", "  [0, 3, 0, 19]\t[0]\t[Not readable]\n"),
            ("F000=01", "  [-16, 0]\t[1]\t[Not readable]\n"),
        ] {
            assert_eq!(raw(column), expected, "{column}");
        }
    }

    #[test]
    fn dates_are_those_of_the_zone() {
        let (tags, mut out) = (Ok(tags()), String::new());
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        RowText { zone: &zone, ..row(&tags) }.raw_column(&cell("0010=2A"), &mut out).unwrap();
        assert!(out.ends_with("(Tue Jan 01 01:00:01 CET 2013)\n"), "{out}");
    }

    #[test]
    fn lines_for_the_importer_have_points_only() {
        for (column, expected) in [
            ("0010=FE", "m 1356998401 -2 host=a\n"),
            ("F000020B=40866666", "m 1356998400008 4.199999809265137 host=a\n"),
            ("001F=C00C000000000000", "m 1356998401 -3.5 host=a\n"),
            ("000B=4B189680", "m 1356998400 1.0E7 host=a\n"),
            ("00100000=040500", "m 1356998400 5 host=a\nm 1356998401 4 host=a\n"),
            ("050000=000004F00002000A", "m 1356998400 4 host=a\nm 1356998400008 10 host=a\n"),
            ("010000=7B7D", ""),
            ("060000=0102", ""),
            // A column that lacks a value has no lines.
            ("00000013=0100", ""),
        ] {
            assert_eq!(import(column), expected, "{column}");
        }
    }
}
