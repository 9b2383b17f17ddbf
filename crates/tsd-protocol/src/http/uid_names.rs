//! Bodies of `/api/uid/assign` and `/api/uid/rename`: names by their kind.
//!
//! Kinds are as sent: an unknown kind is an error of its names, not of the request.

use super::body_fields::{
    BodyError, CountLimit, put_text, read_all, read_body_object, read_text, take_null,
};
use crate::{
    ApiError,
    json::{JsonErrorKind, JsonReader},
};

/// Maximum names of one body.
const MAX_NAMES: usize = 1 << 20;
/// Maximum kinds of one body; three exist.
const MAX_KINDS: usize = 64;

/// Parses `{"metric":[…],"tagk":[…],"tagv":[…]}`. Of equal kinds, the last list counts.
pub fn parse_uid_assign_body(body: &str) -> Result<Vec<(String, Vec<String>)>, ApiError> {
    let mut names_by_kind: Vec<(String, Vec<String>)> = Vec::new();
    let mut limit = CountLimit::new("names", MAX_NAMES);
    let mut kinds = CountLimit::new("kinds of names", MAX_KINDS);
    read_body_object(body, "the names", |kind, reader| {
        kinds.take()?;
        if take_null(reader)? {
            return Err(wrong_type(reader, "names", "null"));
        }
        let names = read_all(reader, "names", |reader| {
            limit.take()?;
            read_text(reader, "names")?.ok_or_else(|| wrong_type(reader, "names", "null"))
        })?;
        match names_by_kind.iter_mut().find(|(known, _)| known == kind) {
            Some((_, known)) => *known = names,
            None => names_by_kind.push((kind.to_owned(), names)),
        }
        Ok(())
    })
    .map_err(BodyError::into_api_error)?;
    Ok(names_by_kind)
}

/// Parses `{"metric":"old","name":"new"}` to its fields, without fields that are `null`.
pub fn parse_uid_rename_body(body: &str) -> Result<Vec<(String, String)>, ApiError> {
    let mut fields = Vec::new();
    let mut kinds = CountLimit::new("fields", MAX_KINDS);
    read_body_object(body, "the names", |key, reader| {
        kinds.take()?;
        if let Some(text) = read_text(reader, "a name")? {
            put_text(&mut fields, key, text);
        }
        Ok(())
    })
    .map_err(BodyError::into_api_error)?;
    Ok(fields)
}

fn wrong_type(reader: &JsonReader<'_>, field: &'static str, found: &'static str) -> BodyError {
    reader.error_at(reader.offset(), JsonErrorKind::WrongType { field, found }).into()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn bodies_of_assignments_are_lists_of_names_by_kind() {
        let names = parse_uid_assign_body(r#"{"metric":["a","b"],"tagk":["c"]}"#).unwrap();
        assert_eq!(
            names,
            [
                ("metric".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
                ("tagk".to_owned(), vec!["c".to_owned()])
            ]
        );
        let bad = ["", "[]", r#"{"metric":"a"}"#, r#"{"metric":[{}]}"#, r#"{"metric":null}"#];
        for bad in bad.into_iter().chain([r#"{"metric":[null]}"#, r#"{"metric":["a"]}{}"#]) {
            let error = parse_uid_assign_body(bad).unwrap_err();
            assert_eq!(error.status, 400, "{bad}");
            assert_eq!(error.message, "Unable to parse the given JSON", "{bad}");
        }
    }

    /// Issue 37: the number of kinds has a limit, since each is looked up among the others.
    #[test]
    fn kinds_of_names_are_bounded() {
        let field = |i: usize, value: &str| format!("\"k{i}\":{value}");
        for (value, parse) in [
            ("[]", (|body| parse_uid_assign_body(body).err()) as fn(&str) -> Option<ApiError>),
            ("1", |body| parse_uid_rename_body(body).err()),
        ] {
            let fields: Vec<String> = (0..=MAX_KINDS).map(|i| field(i, value)).collect();
            assert!(parse(&format!("{{{}}}", fields.join(","))).is_some());
            let fields = fields.split_last().unwrap().1.join(",");
            assert_eq!(parse(&format!("{{{fields}}}")), None);
        }
    }

    #[test]
    fn bodies_of_renames_are_texts() {
        let fields = parse_uid_rename_body(r#"{"name":1,"tagk":"a","tagv":null}"#).unwrap();
        assert_eq!(
            fields,
            [("name".to_owned(), "1".to_owned()), ("tagk".to_owned(), "a".to_owned())]
        );
        for bad in ["", "[]", r#"{"name":[]}"#, r#"{"name":"a"} x"#] {
            assert_eq!(parse_uid_rename_body(bad).unwrap_err().status, 400, "{bad}");
        }
    }
}
