//! The act of an HTTP request, for the audit log: which one it is, who sent it, and how it ended.
//!
//! The table of requirements names the act, or a handler does ([`HttpRequest::check_admin`]), if only the body tells.
//! A refusal before the act begins has a line, too.
//!
//! [`HttpRequest::check_admin`]: super::request::HttpRequest::check_admin

use std::{net::SocketAddr, sync::Arc};

use hyper::http::request::Parts;
use parking_lot::Mutex;
use tsd_protocol::ApiError;

use super::{error::HttpError, response::HttpResponse};
use crate::{
    audit::{ActOutcome, AuditLine, AuditLog, OpenAct, Protocol},
    auth::Identity,
};

/// Maximum bytes of a body in a line.
const MAX_BODY: usize = 4_096;
/// Refusals with these statuses have a line, though the act did not begin: a 401 has a line as a refused sign-in.
const REFUSALS: [u16; 2] = [403, 421];

/// The act of a request.
#[derive(Debug)]
pub(super) struct RequestAct<'r> {
    log: Option<&'r Arc<AuditLog>>,
    parts: &'r Parts,
    client: SocketAddr,
    progress: Mutex<ActProgress>,
}

#[derive(Debug, Default)]
struct ActProgress {
    /// `None` while the request is no act.
    act: Option<&'static str>,
    user: Option<Arc<str>>,
    begun: Option<OpenAct>,
}

impl<'r> RequestAct<'r> {
    /// The request of a client. Without a log, nothing is written.
    pub(super) const fn new(
        log: Option<&'r Arc<AuditLog>>,
        parts: &'r Parts,
        client: SocketAddr,
    ) -> Self {
        let progress = ActProgress { act: None, user: None, begun: None };
        Self { log, parts, client, progress: Mutex::new(progress) }
    }

    /// Names the act, unless it has a name.
    pub(super) fn name(&self, act: &'static str) {
        self.progress.lock().act.get_or_insert(act);
    }

    /// Sets the user who sent the request.
    pub(super) fn set_user(&self, identity: &Identity) {
        if self.log.is_some() {
            self.progress.lock().user = Some(identity.shared_name());
        }
    }

    /// Begins the act, if the request is one.
    pub(super) async fn begin(&self, body: &[u8]) -> Result<(), ApiError> {
        let Some((log, line)) = self.unbegun(body) else { return Ok(()) };
        let begun = log.begin(line).await.map_err(|error| unlogged(&error))?;
        self.progress.lock().begun = Some(begun);
        Ok(())
    }

    /// As [`Self::begin`], for handlers that cannot wait. Blocks.
    pub(super) fn begin_now(&self, body: &[u8]) -> Result<(), ApiError> {
        let Some((log, line)) = self.unbegun(body) else { return Ok(()) };
        let begun = log.begin_now(line).map_err(|error| unlogged(&error))?;
        self.progress.lock().begun = Some(begun);
        Ok(())
    }

    /// Writes how the request ended, if it is an act.
    pub(super) async fn end(&self, outcome: ActOutcome) {
        let Some(log) = self.log else { return };
        let (act, begun) = {
            let mut progress = self.progress.lock();
            (progress.act, progress.begun.take())
        };
        let Some(act) = act else { return };
        if let Some(begun) = begun {
            begun.end(outcome).await;
        } else if let ActOutcome::Refused { status: Some(status), .. } = &outcome
            && REFUSALS.contains(status)
        {
            log.write_refusal(self.line(act).ended(&outcome)).await;
        }
    }

    /// The line of an act that has not begun.
    fn unbegun(&self, body: &[u8]) -> Option<(&'r Arc<AuditLog>, AuditLine)> {
        let log = self.log?;
        let act = {
            let progress = self.progress.lock();
            progress.act.filter(|_| progress.begun.is_none())?
        };
        let line = self.line(act);
        if body.is_empty() {
            return Some((log, line));
        }
        let shown = body.get(..MAX_BODY).unwrap_or(body);
        let line = line.with("body", String::from_utf8_lossy(shown).as_ref());
        let is_cut = body.len() > shown.len();
        Some((log, if is_cut { line.with("body_bytes", body.len()) } else { line }))
    }

    fn line(&self, act: &str) -> AuditLine {
        let user = self.progress.lock().user.clone();
        let request = format!("{} {}", self.parts.method, self.parts.uri);
        AuditLine::new(act)
            .sent_by(user.as_deref(), self.client, Protocol::Http)
            .with("request", request)
    }
}

fn unlogged(error: &dyn std::error::Error) -> ApiError {
    ApiError::new(503, error.to_string())
}

/// Returns how a request ended.
pub(super) fn outcome(handled: &Result<HttpResponse, HttpError>) -> ActOutcome {
    let (status, reason) = match handled {
        Ok(response) => (response.status.as_u16(), String::new()),
        Err(HttpError::StatusOnly(status)) => (status.as_u16(), String::new()),
        Err(HttpError::Api(error) | HttpError::ApiThenClose(error)) => {
            let separator = if error.details.is_empty() { "" } else { ": " };
            (error.status, format!("{}{separator}{}", error.message, error.details))
        }
    };
    match status {
        ..=399 => ActOutcome::Done,
        401 | 403 | 421 | 429 => ActOutcome::refused(status, reason),
        _ => ActOutcome::Failed { status, reason },
    }
}
