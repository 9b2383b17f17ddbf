//! Requests and responses of `/api/uid/uidmeta` and `/api/uid/tsmeta`.
//!
//! As in OpenTSDB, a field counts only if it differs from its default: empty texts and a retention of 0
//! set nothing. `null` resets a field.

use tsd_model::{
    CustomFields, NamedUidMeta, SeriesMeta, TsMetaEdit, UidKind, UidMetaEdit, java_double,
    parse_java_double, parse_java_single, sort_as_copied_hash_map,
};

use super::{
    body_fields::{
        BodyError, CountLimit, read_body_object, read_integer, read_object, read_text, take_null,
    },
    list_response::ListResponseWriter,
    query_string::QueryString,
    tag_text::parse_metric_with_tags,
};
use crate::{
    ApiError,
    json::{JsonErrorKind, JsonObject, JsonReader, write_json_string},
};

/// Maximum custom fields of one object.
const MAX_CUSTOM_FIELDS: usize = 65_536;

/// Request to read or edit a UIDMeta.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UidMetaRequest {
    /// UID as sent; empty if the field is missing.
    pub uid: String,
    /// Kind of the UID.
    pub kind: Option<UidKind>,
    /// Fields to set.
    pub edit: UidMetaEdit,
}

/// Request to read or edit a TSMeta.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TsMetaRequest {
    /// TSUID as sent; empty if the field is missing.
    pub tsuid: String,
    /// Fields to set.
    pub edit: TsMetaEdit,
}

/// Parses the `uid` and `type` of a URI, which are required.
pub fn parse_uid_uri(query: &QueryString) -> Result<(String, UidKind), ApiError> {
    let uid = query.required("uid")?.to_owned();
    let name = query.required("type")?;
    let kind = UidKind::from_name(name).ok_or_else(|| ApiError::new(400, invalid_type(name)))?;
    Ok((uid, kind))
}

/// Parses an edit of a UIDMeta from the parameters of a URI.
pub fn parse_uid_meta_uri(query: &QueryString) -> Result<UidMetaRequest, ApiError> {
    let (uid, kind) = parse_uid_uri(query)?;
    let edit = UidMetaEdit {
        display_name: given(query, "display_name"),
        description: given(query, "description"),
        notes: given(query, "notes"),
        ..UidMetaEdit::default()
    };
    Ok(UidMetaRequest { uid, kind: Some(kind), edit })
}

/// Parses an edit of a UIDMeta from a body.
pub fn parse_uid_meta_body(body: &str) -> Result<UidMetaRequest, ApiError> {
    let mut request = UidMetaRequest::default();
    let mut unknown_type = None;
    let edit = &mut request.edit;
    read_body_object(body, "the object", |key, reader| {
        match key {
            "uid" => request.uid = read_text(reader, "uid")?.unwrap_or_default(),
            "type" => {
                let name = read_text(reader, "type")?;
                request.kind = name.as_deref().and_then(UidKind::from_name);
                unknown_type = name.filter(|_| request.kind.is_none());
            }
            "displayName" => edit.display_name = read_set_text(reader, "displayName")?,
            "description" => edit.description = read_set_text(reader, "description")?,
            "notes" => edit.notes = read_set_text(reader, "notes")?,
            "created" => edit.created = non_zero(read_integer(reader, "created")?),
            "custom" => edit.custom = read_custom(reader)?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })
    .map_err(BodyError::into_api_error)?;
    match unknown_type {
        Some(name) => Err(ApiError::bad_json(invalid_type(&name))),
        None => Ok(request),
    }
}

/// Parses an edit of a TSMeta from the parameters of a URI.
pub fn parse_ts_meta_uri(query: &QueryString) -> Result<TsMetaRequest, ApiError> {
    let unable = |name: &str| ApiError::new(400, format!("Unable to parse '{name}' value"));
    // As in OpenTSDB, the extremes have single precision here.
    let single = |name: &str| {
        given(query, name)
            .map(|text| parse_java_single(text.as_bytes()).map(f64::from))
            .transpose()
            .map_err(|_| unable(name))
    };
    let retention = given(query, "retention")
        .map(|text| text.parse::<i32>())
        .transpose()
        .map_err(|_| unable("retention"))?;
    let edit = TsMetaEdit {
        display_name: given(query, "display_name"),
        description: given(query, "description"),
        notes: given(query, "notes"),
        units: given(query, "units"),
        data_type: given(query, "data_type"),
        retention: retention.and_then(|days| non_zero(days.into())),
        max: single("max")?,
        min: single("min")?,
        ..TsMetaEdit::default()
    };
    Ok(TsMetaRequest { tsuid: given(query, "tsuid").unwrap_or_default(), edit })
}

/// Parses an edit of a TSMeta from a body.
pub fn parse_ts_meta_body(body: &str) -> Result<TsMetaRequest, ApiError> {
    let mut request = TsMetaRequest::default();
    let edit = &mut request.edit;
    read_body_object(body, "the object", |key, reader| {
        match key {
            "tsuid" => request.tsuid = read_text(reader, "tsuid")?.unwrap_or_default(),
            "displayName" => edit.display_name = read_set_text(reader, "displayName")?,
            "description" => edit.description = read_set_text(reader, "description")?,
            "notes" => edit.notes = read_set_text(reader, "notes")?,
            "created" => edit.created = non_zero(read_integer(reader, "created")?),
            "custom" => edit.custom = read_custom(reader)?,
            "units" => edit.units = read_set_text(reader, "units")?,
            "dataType" => edit.data_type = read_set_text(reader, "dataType")?,
            "retention" => {
                let days = read_integer(reader, "retention")?;
                // OpenTSDB keeps it in 32 bits.
                if i32::try_from(days).is_err() {
                    return Err(wrong_number(reader, "retention"));
                }
                edit.retention = non_zero(days);
            }
            "max" => edit.max = read_extreme(reader, "max")?,
            "min" => edit.min = read_extreme(reader, "min")?,
            _ => reader.skip_value()?,
        }
        Ok(())
    })
    .map_err(BodyError::into_api_error)?;
    Ok(request)
}

/// Parses the names of a series, `metric{k=v,…}`.
pub fn parse_series_text(text: &str) -> Result<(String, Vec<(String, String)>), ApiError> {
    if text.is_empty() {
        return Err(ApiError::missing_parameter("m"));
    }
    let (metric, tags) =
        parse_metric_with_tags(text).map_err(|error| ApiError::wrapped(400, error.to_string()))?;
    if metric.is_empty() {
        return Err(ApiError::wrapped(400, "Metric cannot be null or empty"));
    }
    Ok((metric, tags))
}

fn invalid_type(name: &str) -> String {
    format!("Invalid type requested: {name}")
}

/// Returns a parameter that is not empty.
fn given(query: &QueryString, name: &str) -> Option<String> {
    query.get(name).filter(|value| !value.is_empty()).map(str::to_owned)
}

fn non_zero(number: i64) -> Option<i64> {
    (number != 0).then_some(number)
}

/// Reads a text to set: an empty text sets nothing, `null` sets an empty text.
fn read_set_text(
    reader: &mut JsonReader<'_>,
    field: &'static str,
) -> Result<Option<String>, BodyError> {
    Ok(match read_text(reader, field)? {
        None => Some(String::new()),
        Some(text) => Some(text).filter(|text| !text.is_empty()),
    })
}

/// Reads a number to set, also from text; `null` is NaN, the default.
fn read_extreme(
    reader: &mut JsonReader<'_>,
    field: &'static str,
) -> Result<Option<f64>, BodyError> {
    match read_text(reader, field)? {
        None => Ok(Some(f64::NAN)),
        Some(text) if text.trim().is_empty() => Ok(None),
        Some(text) => match parse_java_double(text.trim().as_bytes()) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(wrong_number(reader, field)),
        },
    }
}

fn wrong_number(reader: &JsonReader<'_>, field: &'static str) -> BodyError {
    let at = reader.offset();
    reader.error_at(at, JsonErrorKind::WrongType { field, found: "another value" }).into()
}

/// Reads custom fields. Of equal keys, the last value stays at the position of the first.
fn read_custom(reader: &mut JsonReader<'_>) -> Result<Option<CustomFields>, BodyError> {
    if take_null(reader)? {
        return Ok(None);
    }
    let mut limit = CountLimit::new("custom fields", MAX_CUSTOM_FIELDS);
    let mut fields = CustomFields::new();
    let mut places = std::collections::HashMap::new();
    read_object(reader, "custom", |key, reader| {
        limit.take()?;
        let value = read_text(reader, "custom")?;
        if let Some(at) = places.get(key) {
            if let Some((_, present)) = fields.get_mut(*at) {
                *present = value;
            }
        } else {
            places.insert(key.to_owned(), fields.len());
            fields.push((key.to_owned(), value));
        }
        Ok(())
    })?;
    Ok(Some(fields))
}

/// Renders a UIDMeta.
#[must_use]
pub fn render_uid_meta(object: &NamedUidMeta) -> Vec<u8> {
    let mut out = Vec::new();
    write_uid_meta(&mut out, object);
    out
}

/// Renders a TSMeta.
#[must_use]
pub fn render_series_meta(object: &SeriesMeta) -> Vec<u8> {
    let mut out = Vec::new();
    write_series_meta(&mut out, object);
    out
}

/// Builds the response with a list of TSMeta.
pub fn series_metas_response<I: Iterator<Item = SeriesMeta>>(objects: I) -> ListResponseWriter<I> {
    let write = |out: &mut Vec<u8>, object: SeriesMeta| write_series_meta(out, &object);
    ListResponseWriter::new(b"[".to_vec(), objects, write, b"]".to_vec())
}

pub(super) fn write_uid_meta(out: &mut Vec<u8>, object: &NamedUidMeta) {
    let NamedUidMeta { uid, name, meta } = object;
    let mut fields = JsonObject::open(out);
    fields
        .string("uid", &uid.to_string())
        .string("type", meta.kind.type_name())
        .string("name", name)
        .string("description", &meta.description)
        .string("notes", &meta.notes)
        .literal("created", meta.created);
    match &meta.custom {
        Some(custom) => write_custom(&mut fields, custom),
        None => {
            fields.literal("custom", "null");
        }
    }
    fields.string("displayName", &meta.display_name).close();
}

pub(super) fn write_series_meta(out: &mut Vec<u8>, object: &SeriesMeta) {
    let SeriesMeta { meta, metric, tags, last_received, data_points } = object;
    let mut fields = JsonObject::open(out);
    fields.string("tsuid", &meta.tsuid);
    write_uid_meta(fields.key("metric"), metric);
    fields
        .list("tags", tags, write_uid_meta)
        .string("description", &meta.description)
        .string("notes", &meta.notes)
        .literal("created", meta.created);
    if let Some(custom) = &meta.custom {
        write_custom(&mut fields, custom);
    }
    fields.string("units", &meta.units).literal("retention", meta.retention);
    for (key, number) in [("max", meta.max), ("min", meta.min)] {
        let text = java_double(number);
        if number.is_finite() {
            fields.literal(key, text);
        } else {
            fields.string(key, &text);
        }
    }
    fields
        .string("displayName", &meta.display_name)
        .string("dataType", &meta.data_type)
        .literal("lastReceived", last_received)
        .literal("totalDatapoints", data_points)
        .close();
}

/// Writes custom fields in the order of the hash map that OpenTSDB copies them to.
fn write_custom(object: &mut JsonObject<'_>, custom: &CustomFields) {
    let mut custom: Vec<&(String, Option<String>)> = custom.iter().collect();
    sort_as_copied_hash_map(&mut custom, |(key, _)| key);
    let mut fields = JsonObject::open(object.key("custom"));
    for (key, value) in custom {
        match value {
            Some(value) => write_json_string(fields.key(key), value),
            None => {
                fields.literal(key, "null");
            }
        }
    }
    fields.close();
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use tsd_model::{TsMeta, Uid, UidMeta};

    use super::*;

    fn query(text: &str) -> QueryString {
        QueryString::parse(text).unwrap()
    }

    #[test]
    fn parameters_and_bodies_set_the_same_fields() {
        let by_uri = parse_uid_meta_uri(&query(
            "uid=000001&type=Metrics&display_name=D&description=d&notes=",
        ));
        let by_body = parse_uid_meta_body(
            r#"{"uid":"000001","type":"METRIC","displayName":"D","description":"d","notes":"","x":[{}]}"#,
        );
        let expected = UidMetaRequest {
            uid: "000001".to_owned(),
            kind: Some(UidKind::Metric),
            edit: UidMetaEdit {
                display_name: Some("D".into()),
                description: Some("d".into()),
                ..UidMetaEdit::default()
            },
        };
        assert_eq!((by_uri, by_body), (Ok(expected.clone()), Ok(expected)));
        let by_uri = parse_ts_meta_uri(&query(
            "tsuid=01&units=s&data_type=gauge&retention=7&max=0.5&min=-1&notes=n",
        ));
        let by_body = parse_ts_meta_body(
            r#"{"tsuid":"01","units":"s","dataType":"gauge","retention":"7","max":0.5,"min":"-1","notes":"n"}"#,
        );
        let expected = TsMetaEdit {
            units: Some("s".into()),
            data_type: Some("gauge".into()),
            retention: Some(7),
            max: Some(0.5),
            min: Some(-1.0),
            notes: Some("n".into()),
            ..TsMetaEdit::default()
        };
        let expected = TsMetaRequest { tsuid: "01".to_owned(), edit: expected };
        assert_eq!((by_uri, by_body), (Ok(expected.clone()), Ok(expected)));
    }

    #[test]
    fn defaults_set_nothing_and_null_resets() {
        for body in ["{}", r#"{"displayName":"","created":0,"custom":null}"#] {
            assert!(parse_uid_meta_body(body).unwrap().edit.is_empty(), "{body}");
        }
        for body in ["{}", r#"{"tsuid":"01","retention":0,"units":"","max":""}"#] {
            assert!(parse_ts_meta_body(body).unwrap().edit.is_empty(), "{body}");
        }
        let reset = parse_uid_meta_body(r#"{"notes":null,"custom":{}}"#).unwrap().edit;
        assert_eq!((reset.notes, reset.custom), (Some(String::new()), Some(Vec::new())));
        assert!(parse_ts_meta_body(r#"{"max":null}"#).unwrap().edit.max.unwrap().is_nan());
        assert!(parse_ts_meta_body(r#"{"min":"NaN"}"#).unwrap().edit.min.unwrap().is_nan());
    }

    #[test]
    fn extremes_of_parameters_have_single_precision() {
        let edit = parse_ts_meta_uri(&query("max=0.1&min=1e-3")).unwrap().edit;
        assert_eq!(edit.max, Some(f64::from(0.1_f32)));
        let by_body = parse_ts_meta_body(r#"{"max":0.1}"#).unwrap().edit;
        assert_eq!(by_body.max, Some(0.1));
    }

    #[test]
    fn invalid_input_names_its_field() {
        let error = |text: &str| parse_ts_meta_uri(&query(text)).unwrap_err().message;
        assert_eq!(error("retention=x"), "Unable to parse 'retention' value");
        assert_eq!(error("max=x"), "Unable to parse 'max' value");
        for body in [
            "",
            "[]",
            "{",
            r#"{"uid":{}}"#,
            r#"{"custom":{"a":[]}}"#,
            r#"{"custom":"a"}"#,
            r#"{"type":"x"}"#,
        ] {
            let error = parse_uid_meta_body(body).unwrap_err();
            assert_eq!(
                (error.status, error.message.as_str()),
                (400, "Unable to parse the given JSON"),
                "{body}"
            );
        }
        for body in [r#"{"max":"x"}"#, r#"{"retention":3000000000}"#, r#"{"tsuid":[]}"#] {
            assert_eq!(parse_ts_meta_body(body).unwrap_err().status, 400, "{body}");
        }
        let error = parse_uid_meta_uri(&query("uid=000001&type=x")).unwrap_err();
        assert_eq!((error.status, error.message.as_str()), (400, "Invalid type requested: x"));
        let missing = parse_uid_meta_uri(&query("type=tagk")).unwrap_err();
        assert_eq!(missing, ApiError::missing_parameter("uid"));
    }

    #[test]
    fn series_are_named_by_metric_and_tags() {
        let series = parse_series_text("m{host=a}").unwrap();
        assert_eq!(series, ("m".to_owned(), vec![("host".to_owned(), "a".to_owned())]));
        assert_eq!(parse_series_text("").unwrap_err(), ApiError::missing_parameter("m"));
        for bad in ["m{", "m{host}", "{host=a}", "m{host=a,host=b}"] {
            assert_eq!(parse_series_text(bad).unwrap_err().status, 400, "{bad}");
        }
    }

    #[test]
    fn fields_of_responses_have_opentsdbs_order() {
        let name = |kind, name: &str| NamedUidMeta {
            uid: Uid::try_new(&[0, 0, 1]).unwrap(),
            name: name.to_owned(),
            meta: UidMeta::new(kind, 0),
        };
        let custom = ["owner", "dept"].map(|key| (key.to_owned(), Some("v".into())));
        let object = SeriesMeta {
            meta: TsMeta {
                custom: Some(custom.to_vec()),
                max: 1e10,
                ..TsMeta::new("000001000001000001", 5)
            },
            metric: name(UidKind::Metric, "é😀"),
            tags: vec![name(UidKind::Tagk, "host"), name(UidKind::Tagv, "a")],
            last_received: 7,
            data_points: 2,
        };
        let expected = concat!(
            r#"{"tsuid":"000001000001000001","metric":{"uid":"000001","type":"METRIC","#,
            r#""name":"é\uD83D\uDE00","description":"","notes":"","created":0,"custom":null,"#,
            r#""displayName":""},"tags":[{"uid":"000001","type":"TAGK","name":"host","#,
            r#""description":"","notes":"","created":0,"custom":null,"displayName":""},"#,
            r#"{"uid":"000001","type":"TAGV","name":"a","description":"","notes":"","#,
            r#""created":0,"custom":null,"displayName":""}],"description":"","notes":"","#,
            r#""created":5,"custom":{"owner":"v","dept":"v"},"units":"","retention":0,"#,
            r#""max":1.0E10,"min":"NaN","displayName":"","dataType":"","lastReceived":7,"#,
            r#""totalDatapoints":2}"#
        );
        assert_eq!(String::from_utf8(render_series_meta(&object)).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn arbitrary_input_never_panics(text in "[^%]*") {
            let _ = parse_uid_meta_body(&text);
            let _ = parse_ts_meta_body(&text);
            let _ = parse_series_text(&text);
        }
    }
}
