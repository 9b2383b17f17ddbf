//! What is checked before a login.

use std::path::Path;

use hbase_gss::{Keytab, KeytabError};

use crate::security::{FilePlace, SecurityError};

/// What a keytab is, for errors.
const EXPECTED: &str = "a keytab, as ktadd of kadmin exports it";

/// Checks that the Kerberos library can be loaded.
pub(super) fn library() -> Result<(), SecurityError> {
    hbase_gss::load()
        .map_err(|e| SecurityError::Unavailable { what: "Kerberos", reason: e.to_string() })
}

/// Checks that a keytab is readable and has a key of the principal, if one is named.
pub(super) fn keytab(file: &Path, principal: Option<&str>) -> Result<(), SecurityError> {
    let keytab = Keytab::read(file).map_err(explain)?;
    if let Some(principal) = principal {
        keytab.find(principal).map_err(explain)?;
    }
    Ok(())
}

fn explain(error: KeytabError) -> SecurityError {
    let text = error.to_string();
    let invalid =
        |file, place, reason: String| SecurityError::invalid_file(file, place, reason, EXPECTED);
    match error {
        KeytabError::NotReadable { file, source } => SecurityError::unreadable(file, source),
        KeytabError::NotKeytab { file, reason } => invalid(file, FilePlace::Whole, reason),
        KeytabError::Damaged { file, offset, reason } => {
            invalid(file, FilePlace::Byte(offset), reason.to_owned())
        }
        KeytabError::Empty { file } => invalid(file, FilePlace::Whole, "has no keys".to_owned()),
        KeytabError::NoPrincipal { .. } => SecurityError::InvalidSetting {
            setting: "hbase.client.keytab.principal",
            reason: text,
            expected: "a principal of the keytab".to_owned(),
        },
        _ => SecurityError::InvalidSetting {
            setting: "hbase.client.keytab.file",
            reason: text,
            expected: EXPECTED.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_keytab_is_reported_with_its_setting() {
        let file = std::env::temp_dir().join(format!("hbase-rs-check-{}", std::process::id()));
        let failure = |content: Option<&[u8]>, principal| {
            match content {
                Some(content) => fs::write(&file, content).unwrap(),
                None => drop(fs::remove_file(&file)),
            }
            let text = keytab(&file, principal).unwrap_err().to_string();
            text.replace(&file.display().to_string(), "F")
        };
        // One key of `a@R`.
        let entry = [&[0, 1, 0, 1, b'R', 0, 1, b'a'][..], &[0; 10], &[18, 0, 2, 7, 7]].concat();
        let whole = [&[5, 2, 0, 0, 0][..], &[entry.len() as u8], &entry].concat();
        let expected = "; expected a keytab, as ktadd of kadmin exports it";
        for (content, principal, text) in [
            (None, None, "hbase.client.keytab.file: keytab F: the file does not exist"),
            (Some(&b"#"[..]), None, "F: its only byte is 23"),
            (Some(&whole[..whole.len() - 1]), None, "F, byte 2: it is longer than the file"),
        ] {
            assert_eq!(failure(content, principal), format!("{text}{expected}"));
        }
        let text = failure(Some(&whole), Some("b"));
        let expected = "hbase.client.keytab.principal: keytab F: has no key of b; it has keys of a@R; expected a \
                        principal of the keytab";
        assert_eq!(text, expected);
        keytab(&file, Some("a")).unwrap();
        keytab(&file, None).unwrap();
        fs::remove_file(&file).unwrap();
    }
}
