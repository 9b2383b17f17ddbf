//! Writes JSON with the exact bytes of OpenTSDB's library.
//!
//! Compact, UTF-8, `/` and DEL unescaped, characters outside the basic plane as two escaped
//! surrogates.

use std::io::Write;

use tsd_model::sort_as_grown_hash_map;

/// Writes `text` in quotes.
pub fn write_json_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    if text.bytes().all(|b| (0x20..0x80).contains(&b) && b != b'"' && b != b'\\') {
        out.extend_from_slice(text.as_bytes());
    } else {
        write_json_chars(out, text.chars());
    }
    out.push(b'"');
}

/// Writes characters, escaped where needed, without quotes.
pub(crate) fn write_json_chars(out: &mut Vec<u8>, chars: impl Iterator<Item = char>) {
    for c in chars {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\u{8}' => out.extend_from_slice(b"\\b"),
            '\u{c}' => out.extend_from_slice(b"\\f"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\0'..='\u{1f}' | '\u{10000}'.. => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to memory cannot fail.
                    let _ = write!(out, "\\u{unit:04X}");
                }
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Writes the members of an object, with commas.
#[derive(Debug)]
pub(crate) struct JsonObject<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> JsonObject<'o> {
    /// Opens an object.
    pub(crate) fn open(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Writes a key; the caller writes the value.
    pub(crate) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        write_json_string(self.out, key);
        self.out.push(b':');
        self.out
    }

    /// Writes a string member.
    pub(crate) fn string(&mut self, key: &str, value: &str) -> &mut Self {
        write_json_string(self.key(key), value);
        self
    }

    /// Writes a string member, or `null`.
    pub(crate) fn optional(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.string(key, value),
            None => self.literal(key, "null"),
        }
    }

    /// Writes an array; `write` writes an element.
    pub(crate) fn list<T>(
        &mut self,
        key: &str,
        elements: impl IntoIterator<Item = T>,
        write: impl FnMut(&mut Vec<u8>, T),
    ) -> &mut Self {
        write_json_list(self.key(key), elements, write);
        self
    }

    /// Writes an array of strings.
    pub(crate) fn strings(&mut self, key: &str, texts: &[String]) -> &mut Self {
        self.list(key, texts, |out, text| write_json_string(out, text))
    }

    /// Writes an object of strings, in the order of the pairs.
    pub(crate) fn object<K: AsRef<str>, V: AsRef<str>>(
        &mut self,
        key: &str,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> &mut Self {
        let mut object = JsonObject::open(self.key(key));
        for (key, value) in pairs {
            object.string(key.as_ref(), value.as_ref());
        }
        object.close();
        self
    }

    /// Writes tags, in the order of a Java hash map.
    pub(crate) fn tags(&mut self, key: &str, tags: &[(String, String)]) -> &mut Self {
        let mut tags: Vec<_> = tags.iter().map(|(tagk, tagv)| (tagk, tagv)).collect();
        sort_as_grown_hash_map(&mut tags, |(tagk, _)| tagk);
        self.object(key, tags)
    }

    /// Writes a member whose `Display` is JSON: numbers, booleans, `null`.
    pub(crate) fn literal(&mut self, key: &str, value: impl std::fmt::Display) -> &mut Self {
        // Writing to memory cannot fail.
        let _ = write!(self.key(key), "{value}");
        self
    }

    /// Closes the object.
    pub(crate) fn close(&mut self) {
        self.out.push(b'}');
    }
}

/// Writes an array; `write` writes an element.
pub(crate) fn write_json_list<T>(
    out: &mut Vec<u8>,
    elements: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    let mut list = JsonList::open(out);
    for element in elements {
        write(list.element(), element);
    }
    list.close();
}

/// Writes the elements of an array, with commas.
#[derive(Debug)]
pub(crate) struct JsonList<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> JsonList<'o> {
    /// Opens an array.
    pub(crate) fn open(out: &'o mut Vec<u8>) -> Self {
        out.push(b'[');
        Self { out, first: true }
    }

    /// Starts an element; the caller writes the value.
    pub(crate) fn element(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        self.out
    }

    /// Closes the array.
    pub(crate) fn close(&mut self) {
        self.out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let mut out = Vec::new();
        write_json_string(&mut out, text);
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn escapes_are_javas() {
        check("plain /\u{7f}", "\"plain /\u{7f}\"");
        check("\0\u{1}\u{8}\u{c}\n\r\t\u{1f}", "\"\\u0000\\u0001\\b\\f\\n\\r\\t\\u001F\"");
        check("\"\\", "\"\\\"\\\\\"");
        check("é中\u{2028}", "\"é中\u{2028}\"");
        check("😀", "\"\\uD83D\\uDE00\"");
    }

    proptest! {
        #[test]
        fn written_text_is_parsed_back(text in any::<String>()) {
            let mut out = Vec::new();
            write_json_string(&mut out, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&out)?, text);
        }
    }
}
