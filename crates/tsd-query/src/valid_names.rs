//! Text for errors about unknown names: the nearest valid name, and all valid names.

use strsim::osa_distance;

/// Longest text that is compared with names. A longer text is not a misspelled name.
const MAX_COMPARED: usize = 128;
/// Usual names of functions, and the valid names that they stand for.
const SYNONYMS: [(&str, &str); 8] = [
    ("average", "avg"),
    ("maximum", "max"),
    ("mean", "avg"),
    ("minimum", "min"),
    ("std", "dev"),
    ("stddev", "dev"),
    ("stdev", "dev"),
    ("total", "sum"),
];

/// The valid name that `unknown` most likely stands for: a synonym, or the name with the fewest changed characters.
#[must_use]
pub fn nearest_name(
    unknown: &str,
    valid: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    if unknown.len() > MAX_COMPARED {
        return None;
    }
    let most = match unknown.len() {
        0 | 1 => 0,
        // Two changes would turn most short names into each other.
        2..=4 => 1,
        length => (length / 4).clamp(2, 6),
    };
    let unknown = unknown.to_ascii_lowercase();
    let synonym = SYNONYMS.iter().find(|(synonym, _)| *synonym == unknown);
    valid
        .map(|name| match synonym {
            Some((_, meant)) if *meant == name => (0, name),
            _ => (osa_distance(&unknown, &name.to_ascii_lowercase()), name),
        })
        .min()
        .filter(|(changes, _)| *changes <= most)
        .map(|(_, name)| name)
}

/// Sentences that follow the message about an unknown name.
#[must_use]
pub fn valid_names(unknown: &str, valid: impl Iterator<Item = &'static str> + Clone) -> String {
    let nearest = nearest_name(unknown, valid.clone());
    let question = nearest.map_or_else(String::new, |name| format!("Did you mean {name}? "));
    let mut names: Vec<&str> = valid.collect();
    names.sort_unstable();
    format!("{question}Valid names: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 6] = ["sum", "avg", "min", "max", "dev", "squareSum"];

    #[test]
    fn misspelled_names_and_synonyms_are_recognised() {
        for (unknown, expected) in [
            ("SUM", Some("sum")),
            ("smu", Some("sum")),
            ("avrg", Some("avg")),
            ("mean", Some("avg")),
            ("stddev", Some("dev")),
            ("squaresums", Some("squareSum")),
            ("x", None),
            ("bad", None),
            ("", None),
            ("percentile", None),
        ] {
            assert_eq!(nearest_name(unknown, NAMES.into_iter()), expected, "{unknown}");
        }
        let long = format!("sum{}", "m".repeat(MAX_COMPARED));
        assert_eq!(nearest_name(&long, NAMES.into_iter()), None);
    }

    #[test]
    fn a_synonym_of_an_invalid_name_is_not_recognised() {
        assert_eq!(nearest_name("average", ["none"].into_iter()), None);
    }

    #[test]
    fn the_text_has_all_names() {
        let valid = "Valid names: avg, dev, max, min, squareSum, sum";
        let text = |unknown| valid_names(unknown, NAMES.into_iter());
        assert_eq!(text("summ"), format!("Did you mean sum? {valid}"));
        assert_eq!(text("percentile"), valid);
    }
}
