//! Output of `tsdb uid`: OpenTSDB's lines, or JSON.

use std::io::{self, Write};

use serde_json::{Value, json};
use tsd_engine::{StoredMapping, UidKind};
use tsd_model::to_hex;

use super::status::{FAILED, NOT_FOUND, not_found};
use crate::{output::CannotWrite, tell};

/// Output of a command. If the reader has closed its pipe, later output is dropped.
pub(super) struct UidOutput<'a> {
    out: &'a mut (dyn Write + Send),
    json: bool,
    is_closed: bool,
    /// The first failed write.
    failure: Option<io::Error>,
}

/// Prints mappings as they are found.
pub(super) struct MappingList<'o, 'a> {
    out: &'o mut UidOutput<'a>,
    count: u64,
}

impl<'a> UidOutput<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send), json: bool) -> Self {
        Self { out, json, is_closed: false, failure: None }
    }

    fn print(&mut self, text: &str) {
        if self.is_closed {
            return;
        }
        if let Err(error) = self.out.write_all(text.as_bytes()) {
            self.is_closed = true;
            self.failure = (error.kind() != io::ErrorKind::BrokenPipe).then_some(error);
        }
    }

    /// The exit status of the command: `status` if everything was written.
    pub(super) fn status(self, status: u8) -> u8 {
        match self.failure {
            Some(error) => {
                tell!("tsdb: {}", CannotWrite(error));
                if status == 0 { FAILED } else { status }
            }
            None => status,
        }
    }

    pub(super) fn line(&mut self, line: &str) {
        self.print(&format!("{line}\n"));
    }

    pub(super) fn object(&mut self, value: &Value) {
        self.print(&format!("{value}\n"));
    }

    pub(super) fn list(&mut self) -> MappingList<'_, 'a> {
        if self.json {
            self.print("[");
        }
        MappingList { out: self, count: 0 }
    }

    /// Prints the result of a lookup; returns the exit status.
    pub(super) fn found(
        &mut self,
        found: &[StoredMapping],
        kind: Option<UidKind>,
        word: &str,
    ) -> u8 {
        let mut list = self.list();
        for mapping in found {
            list.add(mapping);
        }
        list.end();
        if found.is_empty() {
            not_found(kind, word);
            return NOT_FOUND;
        }
        0
    }

    pub(super) fn renamed(&mut self, kind: UidKind, old: &str, new: &str) {
        if self.json {
            self.object(&json!({ "kind": kind.as_str(), "old": old, "new": new }));
        } else {
            self.line(&format!("{kind} {old} -> {new}"));
        }
    }

    /// Prints the counts of a run over all names or series. OpenTSDB only logs them, so they go to standard error.
    pub(super) fn counted(&mut self, what: &str, counts: &[(&str, u64)]) {
        if self.json {
            self.object(&counts.iter().copied().collect());
        } else {
            let texts = counts.iter().map(|(name, count)| format!("{count} {name}"));
            tell!("tsdb: {what}: {}", texts.collect::<Vec<_>>().join(", "));
        }
    }

    /// Prints JSON only, because OpenTSDB prints nothing.
    pub(super) fn deleted(&mut self, kind: UidKind, name: &str, uid: &[u8]) {
        if self.json {
            self.object(&json!({ "kind": kind.as_str(), "name": name, "uid": to_hex(uid) }));
        }
    }
}

impl MappingList<'_, '_> {
    /// Prints a mapping; returns false if the reader has closed the pipe. Omits counters from JSON.
    pub(super) fn add(&mut self, mapping: &StoredMapping) -> bool {
        let StoredMapping { kind, name, uid, is_counter } = mapping;
        if !self.out.json {
            self.out.print(&format!("{kind} {name}: {}\n", signed_bytes(uid)));
        } else if !is_counter {
            let separator = if self.count > 0 { ",\n " } else { "" };
            let value = json!({ "kind": kind.as_str(), "name": name, "uid": to_hex(uid) });
            self.out.print(&format!("{separator}{value}"));
            self.count += 1;
        }
        !self.out.is_closed
    }

    pub(super) fn end(self) {
        if self.out.json {
            self.out.print("]\n");
        }
    }
}

/// Bytes as Java prints them.
fn signed_bytes(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| byte.cast_signed().to_string()).collect();
    format!("[{}]", bytes.join(", "))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;

    use super::*;

    fn printed(json: bool) -> String {
        let mut out = Vec::new();
        let mut output = UidOutput::new(&mut out, json);
        let mut list = output.list();
        let counter = StoredMapping {
            kind: UidKind::Metric,
            name: "\0".to_owned(),
            uid: Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 2]),
            is_counter: true,
        };
        let name = |name: &str, uid: &'static [u8]| StoredMapping {
            kind: UidKind::Tagv,
            name: name.to_owned(),
            uid: Bytes::from_static(uid),
            is_counter: false,
        };
        for mapping in [counter, name("a", &[0, 0, 1]), name("\"b\"", &[0xff, 0x80, 0])] {
            assert!(list.add(&mapping));
        }
        list.end();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn bytes_are_signed_as_in_java_and_hexadecimal_in_json() {
        assert_eq!(
            printed(false),
            "metrics \0: [0, 0, 0, 0, 0, 0, 0, 2]\ntagv a: [0, 0, 1]\ntagv \"b\": [-1, -128, 0]\n"
        );
        let json: Value = serde_json::from_str(&printed(true)).unwrap();
        assert_eq!(
            json,
            json!([
                { "kind": "tagv", "name": "a", "uid": "000001" },
                { "kind": "tagv", "name": "\"b\"", "uid": "FF8000" },
            ])
        );
    }

    #[test]
    fn what_nobody_reads_is_dropped() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
                Err(std::io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mapping = StoredMapping {
            kind: UidKind::Metric,
            name: "m".to_owned(),
            uid: Bytes::new(),
            is_counter: false,
        };
        assert!(!UidOutput::new(&mut Closed, false).list().add(&mapping));
    }
}
