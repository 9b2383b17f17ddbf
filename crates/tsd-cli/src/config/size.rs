//! Sizes in bytes, with or without a unit.

/// Units in lower case with their bytes.
const UNITS: [(&str, i64); 10] = [
    ("", 1),
    ("b", 1),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];

/// Reads a size: a whole number of bytes, or of a unit in any case. `None` if it is another text or too large.
pub(super) fn parse_size(text: &str) -> Option<i64> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, bytes) = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
    number.parse::<i64>().ok()?.checked_mul(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_unit_that_is_written() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            (" 512 MiB ", Some(512 << 20)),
            ("2GiB", Some(2 << 30)),
            ("2gb", Some(2_000_000_000)),
            ("7B", Some(7)),
            ("8388607TiB", Some(8_388_607 << 40)),
            // One more than fits.
            ("8388608TiB", None),
            // In some programs 1000, in others 1024.
            ("2g", None),
            ("1.5GiB", None),
            ("MiB", None),
            ("", None),
            ("1 2", None),
            ("2GiBs", None),
            ("é", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text:?}");
        }
    }
}
