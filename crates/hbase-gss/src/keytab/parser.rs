//! The format of keytabs.
//!
//! ```text
//! keytab     05 01 or 05 02 | record*
//! record     size:i32 | entry           size < 0: a hole of -size bytes; size 0: the end
//! entry      components:u16 | realm | component* | name type:u32 (version 2) | time:u32
//!            | key version:u8 | encryption type:u16 | key | key version:u32 (optional)
//! realm, component, key                 length:u16 | bytes
//! ```
//!
//! In version 1 the number of components includes the realm.

/// Why a file is no usable keytab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ParseError {
    /// It is something else.
    Version(String),
    /// A record is damaged.
    Entry {
        /// Where the record begins.
        offset: usize,
        /// What is wrong.
        reason: &'static str,
    },
}

/// Returns the principals in the order of their first entries.
pub(super) fn principals(content: &[u8]) -> Result<Vec<String>, ParseError> {
    let order = match content {
        [5, 1, ..] => ByteOrder::Native,
        [5, 2, ..] => ByteOrder::BigEndian,
        [] => return Err(ParseError::Version("the file is empty".to_owned())),
        [first] => {
            return Err(ParseError::Version(format!("its only byte is {first:02x}")));
        }
        [first, second, ..] => {
            return Err(ParseError::Version(format!(
                "it begins with {first:02x} {second:02x} instead of 05 02"
            )));
        }
    };
    let mut found: Vec<String> = Vec::new();
    let mut rest = content.get(2..).unwrap_or_default();
    while !rest.is_empty() {
        let offset = content.len() - rest.len();
        let damaged = |reason| ParseError::Entry { offset, reason };
        let mut fields = Fields { rest, order };
        // Fewer bytes than a size are padding.
        let Some(size) = fields.u32().map(u32::cast_signed) else { break };
        if size == 0 {
            break;
        }
        let record = fields
            .bytes(size.unsigned_abs() as usize)
            .ok_or_else(|| damaged("it is longer than the file"))?;
        rest = fields.rest;
        if size > 0 {
            let principal = Fields { rest: record, order }.entry().map_err(damaged)?;
            if !found.contains(&principal) {
                found.push(principal);
            }
        }
    }
    Ok(found)
}

/// Byte order of numbers.
#[derive(Clone, Copy)]
enum ByteOrder {
    Native,
    BigEndian,
}

/// Reads fields from the beginning of `rest`. A read past the end returns nothing.
struct Fields<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Fields<'a> {
    /// Reads an entry and returns its principal.
    fn entry(&mut self) -> Result<String, &'static str> {
        let count = self.u16().ok_or("its number of names is cut off")?;
        let (count, has_name_type) = match self.order {
            ByteOrder::Native => (count.saturating_sub(1), false),
            ByteOrder::BigEndian => (count, true),
        };
        if count == 0 {
            return Err("its principal has no name");
        }
        let realm = self.text().ok_or("its realm is cut off")?;
        let mut principal = String::new();
        for number in 0..count {
            if number > 0 {
                principal.push('/');
            }
            let name = self.text().ok_or("a name of its principal is cut off")?;
            principal.push_str(&name);
        }
        principal.push('@');
        principal.push_str(&realm);
        if has_name_type {
            self.u32().ok_or("its type of names is cut off")?;
        }
        self.bytes(4 + 1 + 2).ok_or("its time, key version or encryption type is cut off")?;
        let key = self.counted().ok_or("its key is cut off")?;
        if key.is_empty() {
            return Err("its key is empty");
        }
        Ok(principal)
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        let bytes = self.bytes(2)?.try_into().ok()?;
        Some(match self.order {
            ByteOrder::Native => u16::from_ne_bytes(bytes),
            ByteOrder::BigEndian => u16::from_be_bytes(bytes),
        })
    }

    fn u32(&mut self) -> Option<u32> {
        let bytes = self.bytes(4)?.try_into().ok()?;
        Some(match self.order {
            ByteOrder::Native => u32::from_ne_bytes(bytes),
            ByteOrder::BigEndian => u32::from_be_bytes(bytes),
        })
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.bytes(length.into())
    }

    /// Reads a name and escapes what has a meaning in principals.
    fn text(&mut self) -> Option<String> {
        let name = String::from_utf8_lossy(self.counted()?);
        let mut text = String::with_capacity(name.len());
        for c in name.chars() {
            match c {
                '@' | '/' | '\\' => text.extend(['\\', c]),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\u{8}' => text.push_str("\\b"),
                '\0' => text.push_str("\\0"),
                c => text.push(c),
            }
        }
        Some(text)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counted(bytes: &[u8], order: ByteOrder) -> Vec<u8> {
        [&number(bytes.len() as u16, order)[..], bytes].concat()
    }

    fn number(value: u16, order: ByteOrder) -> [u8; 2] {
        match order {
            ByteOrder::Native => value.to_ne_bytes(),
            ByteOrder::BigEndian => value.to_be_bytes(),
        }
    }

    /// An entry of version 2.
    pub(in super::super) fn entry(realm: &str, names: &[&str], key_version: u8) -> Vec<u8> {
        let order = ByteOrder::BigEndian;
        let mut entry = number(names.len() as u16, order).to_vec();
        entry.extend(counted(realm.as_bytes(), order));
        for name in names {
            entry.extend(counted(name.as_bytes(), order));
        }
        entry.extend([0, 0, 0, 1]);
        entry.extend([0x66, 0, 0, 0, key_version, 0, 18]);
        entry.extend(counted(&[7; 32], order));
        entry.extend(u32::from(key_version).to_be_bytes());
        entry
    }

    /// A keytab of version 2.
    pub(in super::super) fn keytab(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut keytab = vec![5, 2];
        for entry in entries {
            keytab.extend((entry.len() as u32).to_be_bytes());
            keytab.extend(entry);
        }
        keytab
    }

    #[track_caller]
    fn check(content: &[u8], expected: &[&str]) {
        assert_eq!(principals(content).expect("a keytab"), expected);
    }

    #[test]
    fn principals_are_listed_once() {
        let entries = [entry("R", &["a"], 1), entry("R", &["b", "h"], 1), entry("R", &["a"], 2)];
        check(&keytab(&entries), &["a@R", "b/h@R"]);
    }

    #[test]
    fn special_characters_are_escaped() {
        check(
            &keytab(&[entry("R/S", &["a@b", "\\\t\n\u{8}\0"], 1)]),
            &["a\\@b/\\\\\\t\\n\\b\\0@R\\/S"],
        );
    }

    #[test]
    fn holes_and_the_end_are_skipped() {
        let mut content = keytab(&[entry("R", &["a"], 1)]);
        content.extend((-5_i32).to_be_bytes());
        content.extend([0xff; 5]);
        content.extend(keytab(&[entry("R", &["b"], 1)]).split_off(2));
        check(&content, &["a@R", "b@R"]);
        content.extend([0, 0, 0, 0, 1, 2, 3, 4]);
        check(&content, &["a@R", "b@R"]);
        check(&[5, 2, 1, 2], &[]);
    }

    #[test]
    fn version_one_counts_the_realm() {
        let order = ByteOrder::Native;
        let mut entry = number(3, order).to_vec();
        for text in ["R", "a", "h"] {
            entry.extend(counted(text.as_bytes(), order));
        }
        entry.extend([0, 0, 0, 0, 1, 18, 0]);
        entry.extend(counted(&[7; 16], order));
        let mut content = vec![5, 1];
        content.extend((entry.len() as u32).to_ne_bytes());
        content.extend(entry);
        check(&content, &["a/h@R"]);
    }

    #[test]
    fn damage_is_named_with_its_position() {
        let first = entry("R", &["a"], 1);
        let damaged = |entry: &[u8]| {
            let error = principals(&keytab(&[first.clone(), entry.to_vec()])).expect_err("damage");
            let offset = 2 + 4 + first.len();
            match error {
                ParseError::Entry { offset: at, reason } if at == offset => reason,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(damaged(&[0]), "its number of names is cut off");
        assert_eq!(damaged(&[0, 0, 0, 0]), "its principal has no name");
        assert_eq!(damaged(&[0, 1, 0, 9]), "its realm is cut off");
        assert_eq!(damaged(&[0, 1, 0, 1, b'R', 0, 2, 0]), "a name of its principal is cut off");
        let whole = entry("R", &["b"], 1);
        let until = |cut: usize| damaged(&whole[..whole.len() - cut]);
        // Behind the principal: type 4, time 4, version 1, encryption 2, key 2 + 32, version 4.
        assert_eq!(until(4 + 34 + 7 + 1), "its type of names is cut off");
        assert_eq!(until(4 + 34 + 1), "its time, key version or encryption type is cut off");
        assert_eq!(until(4 + 1), "its key is cut off");
        let mut hole = vec![5, 2];
        hole.extend(i32::MIN.to_be_bytes());
        let expected = ParseError::Entry { offset: 2, reason: "it is longer than the file" };
        assert_eq!(principals(&hole), Err(expected));
    }

    /// The last key version is optional.
    #[test]
    fn a_short_key_version_is_enough() {
        let whole = entry("R", &["a"], 1);
        check(&keytab(&[whole[..whole.len() - 4].to_vec()]), &["a@R"]);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(
            version in 0_u8..4,
            content in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let content = [&[5, version][..], &content].concat();
            let _ = principals(&content);
        }

        #[test]
        fn damaged_keytabs_do_not_panic(at in 0_usize..80, value: u8, length in 0_usize..80) {
            let mut content = keytab(&[entry("R", &["a", "b"], 1), entry("R", &["c"], 1)]);
            if let Some(byte) = content.get_mut(at) {
                *byte = value;
            }
            content.truncate(length);
            let _ = principals(&content);
        }

        #[test]
        fn names_are_read_as_written(names in prop::collection::vec("[a-z.0-9-]{1,9}", 1..4)) {
            let parts: Vec<&str> = names.iter().map(String::as_str).collect();
            let expected = format!("{}@REALM", names.join("/"));
            prop_assert_eq!(principals(&keytab(&[entry("REALM", &parts, 1)])), Ok(vec![expected]));
        }
    }
}
