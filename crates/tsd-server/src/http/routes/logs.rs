//! `/logs`: the last events of the log, and its level.

use hyper::StatusCode;
use serde_json::json;
use tracing::{Level, info};
use tsd_protocol::ApiError;

use crate::{
    http::{
        error::HttpError,
        request::HttpRequest,
        response::{ContentType, HttpResponse},
    },
    recent_logs::LogControl,
};

/// Lists the last events, or sets a level. As in OpenTSDB, `json` takes precedence over `level`.
pub(super) fn logs(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    let Some(log) = &request.state.config.log else {
        return Err(ApiError::new(400, "This daemon does not keep its last log events").into());
    };
    if request.query.has("json") {
        let lines = json!(log.recent.lines()).to_string();
        return Ok(HttpResponse::new(StatusCode::OK, ContentType::LegacyJson, lines));
    }
    if let Some(level) = request.query.get("level") {
        return set_level(request, log, level);
    }
    let text = log.recent.lines().into_iter().fold(String::new(), |mut text, line| {
        text.push_str(&line);
        text.push('\n');
        text
    });
    Ok(HttpResponse::new(StatusCode::OK, ContentType::Text, text))
}

fn set_level(
    request: &HttpRequest<'_>,
    log: &LogControl,
    word: &str,
) -> Result<HttpResponse, HttpError> {
    request.check_admin("log level")?;
    let (name, level) =
        parse_level(word).ok_or_else(|| ApiError::new(400, format!("Invalid level: {word}")))?;
    let logger = request.query.get("logger");
    let count =
        log.set_level(level, logger).map_err(|error| ApiError::new(400, error.to_string()))?;
    info!(peer = %request.peer, level = name, logger = logger.unwrap_or("all"), "the log level was set");
    let plural = if count == 1 { "" } else { "s" };
    let text = format!("Set the log level to {name} on {count} logger{plural}.\n");
    Ok(HttpResponse::new(StatusCode::OK, ContentType::Text, text))
}

/// Parses the name of a level in any case. Returns the name and the level, `None` for no events.
fn parse_level(word: &str) -> Option<(&'static str, Option<Level>)> {
    let known = [
        ("OFF", None),
        ("ERROR", Some(Level::ERROR)),
        ("WARN", Some(Level::WARN)),
        ("INFO", Some(Level::INFO)),
        ("DEBUG", Some(Level::DEBUG)),
        ("TRACE", Some(Level::TRACE)),
        ("ALL", Some(Level::TRACE)),
    ];
    known.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(word.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_known_in_any_case() {
        assert_eq!(parse_level("debug"), Some(("DEBUG", Some(Level::DEBUG))));
        assert_eq!(parse_level("Off"), Some(("OFF", None)));
        assert_eq!(parse_level("all"), Some(("ALL", Some(Level::TRACE))));
        assert_eq!(parse_level("loud"), None);
        assert_eq!(parse_level(""), None);
    }
}
