//! Known differences, which are listed with a reason.

use crate::differential::compare::Difference;

/// The list, which `docs/differences.md` repeats for users.
const LIST: &str = include_str!("known_differences.txt");

/// One entry: texts that must all occur.
#[derive(Default)]
struct Entry {
    name: &'static str,
    /// In the request, as it is printed.
    request: Vec<&'static str>,
    /// In OpenTSDB's response, after its status and a blank.
    theirs: Vec<&'static str>,
    ours: Vec<&'static str>,
    /// In the path to the first difference.
    at: Vec<&'static str>,
}

pub(crate) struct KnownDifferences(Vec<Entry>);

impl KnownDifferences {
    pub(crate) fn load() -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        for line in LIST.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
            let Some((key, text)) = line.split_once(": ") else {
                assert!(line.is_empty(), "known_differences.txt: {line}");
                continue;
            };
            if key == "name" {
                entries.push(Entry { name: text, ..Entry::default() });
                continue;
            }
            let entry = entries.last_mut().expect("a name");
            match key {
                "reason" => {}
                "request" => entry.request.push(text),
                "theirs" => entry.theirs.push(text),
                "ours" => entry.ours.push(text),
                "at" => entry.at.push(text),
                _ => panic!("known_differences.txt: {line}"),
            }
        }
        Self(entries)
    }

    /// The name of the entry that describes a difference.
    pub(crate) fn find(&self, difference: &Difference) -> Option<&'static str> {
        let request = difference.request.to_string();
        let theirs = format!("{} {}", difference.theirs.status, difference.theirs.body);
        let ours = format!("{} {}", difference.ours.status, difference.ours.body);
        // A status stands at the start; elsewhere its digits are part of a value.
        let occurs = |one: &str, text: &str| {
            let first = one.split(' ').next().unwrap_or_default();
            let is_status = first.len() == 3 && first.bytes().all(|byte| byte.is_ascii_digit());
            if is_status { text.starts_with(one) } else { text.contains(one) }
        };
        let all = |texts: &[&str], text: &str| texts.iter().all(|one| occurs(one, text));
        let matches = |entry: &&Entry| {
            all(&entry.request, &request)
                && all(&entry.theirs, &theirs)
                && all(&entry.ours, &ours)
                && all(&entry.at, &difference.at)
        };
        self.0.iter().find(matches).map(|entry| entry.name)
    }
}
