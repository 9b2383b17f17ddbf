//! The web page. Its files are compiled into the program: `/` is the HTML, all other files are below `/s/page/`.
//!
//! The files in `crates/tsd-server/page/` are served unchanged: they need no build, and the browser loads nothing
//! from other hosts. `docs/decisions/014-page.md` has the reasons.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::LazyLock,
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{
        CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH,
        REFERRER_POLICY, VARY,
    },
};
use tsd_protocol::ApiError;

use crate::http::{
    error::HttpError,
    request::HttpRequest,
    response::{ContentType, HttpResponse},
};

/// Folder of the files below `/s/`.
const FOLDER: &str = "page/";

/// Name of the HTML file, which is served at `/`.
const INDEX: &str = "index.html";

/// Name of the file that ends the use of a name and password by the browser.
const SIGNED_OUT: &str = "signed_out.html";
/// With `"cookies"`, browsers also forget HTTP credentials. They heed it over TLS, and from localhost.
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// Limits what the page may load and do. Names and tags are untrusted text: if one of them became markup, it could
/// neither run code nor send data.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data: blob:; connect-src 'self'; frame-ancestors 'none'; \
                      base-uri 'none'; form-action 'none'";

/// A file of the page.
struct PageFile {
    name: &'static str,
    content_type: ContentType,
    bytes: &'static [u8],
}

macro_rules! page_files {
    ($($name:literal: $content_type:ident,)*) => {
        &[$(PageFile {
            name: $name,
            content_type: ContentType::$content_type,
            bytes: include_bytes!(concat!("../../../page/", $name)),
        }),*]
    };
}

/// Every file of the page.
const FILES: &[PageFile] = page_files! {
    "index.html": Html,
    "signed_out.html": Html,
    "theme.css": Css,
    "dark.css": Css,
    "page.css": Css,
    "icon.svg": Svg,
    "address.js": Script,
    "annotate.js": Script,
    "api.js": Script,
    "axis_form.js": Script,
    "cardinality.js": Script,
    "chart.js": Script,
    "chart_input.js": Script,
    "complete.js": Script,
    "config.js": Script,
    "cost.js": Script,
    "dom.js": Script,
    "draw.js": Script,
    "empty.js": Script,
    "export.js": Script,
    "format.js": Script,
    "graph.js": Script,
    "hidden.js": Script,
    "link.js": Script,
    "log.js": Script,
    "main.js": Script,
    "metric_list.js": Script,
    "metrics.js": Script,
    "overview.js": Script,
    "poll.js": Script,
    "queries.js": Script,
    "query_form.js": Script,
    "request.js": Script,
    "result.js": Script,
    "scale.js": Script,
    "self_stats.js": Script,
    "stack.js": Script,
    "storage.js": Script,
    "table.js": Script,
    "time.js": Script,
    "time_bar.js": Script,
    "user.js": Script,
    "view.js": Script,
    "zone.js": Script,
};

/// Entity tags of [`FILES`], in the same order. Weak, since a compressed response has the same tag.
static ENTITY_TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    FILES
        .iter()
        .map(|file| {
            let mut hasher = DefaultHasher::new();
            file.bytes.hash(&mut hasher);
            format!("W/\"{:016x}\"", hasher.finish())
        })
        .collect()
});

/// `/`.
pub(super) fn home(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET])?;
    respond(INDEX, request.headers).ok_or_else(|| ApiError::page_not_found().into())
}

/// Serves a file of the page at a path below `/s/`.
pub(super) fn page_file(path: &str, headers: &HeaderMap) -> Option<HttpResponse> {
    respond(path.strip_prefix(FOLDER)?, headers)
}

fn respond(name: &str, headers: &HeaderMap) -> Option<HttpResponse> {
    let (at, file) = FILES.iter().enumerate().find(|(_, file)| file.name == name)?;
    let tag = ENTITY_TAGS.get(at)?;
    let response = if has_tag(headers, tag) {
        HttpResponse::status_only(StatusCode::NOT_MODIFIED)
    } else {
        HttpResponse::new(StatusCode::OK, file.content_type, Bytes::from_static(file.bytes))
    };
    let fixed = HeaderValue::from_static;
    let response = match name {
        SIGNED_OUT => response.with_header(CLEAR_SITE_DATA, fixed("\"cookies\"")),
        _ => response,
    };
    Some(
        response
            // Another version of the program may have other files under the same names.
            .with_header(CACHE_CONTROL, fixed("no-cache"))
            .with_header(ETAG, HeaderValue::from_str(tag).ok()?)
            .with_header(VARY, fixed("accept-encoding"))
            .with_header(CONTENT_SECURITY_POLICY, fixed(POLICY))
            .with_header(REFERRER_POLICY, fixed("no-referrer")),
    )
}

/// Returns true if the client already has the file with this entity tag.
fn has_tag(headers: &HeaderMap, tag: &str) -> bool {
    let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|known| known.trim() == "*" || weak(known) == weak(tag))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let present: BTreeSet<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let embedded: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(present, embedded);
    }

    #[test]
    fn files_that_the_client_has_are_not_sent() {
        let tag = ENTITY_TAGS.first().unwrap();
        for (sent, expected) in [
            (tag.clone(), 304),
            (tag.trim_start_matches("W/").to_owned(), 304),
            (format!("\"x\", {tag}"), 304),
            ("*".to_owned(), 304),
            ("\"x\"".to_owned(), 200),
            (String::new(), 200),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, sent.parse().unwrap());
            let response = respond(INDEX, &headers).unwrap();
            assert_eq!(response.status.as_u16(), expected, "{sent}");
            assert_eq!(response.full_body().is_empty(), expected == 304);
        }
    }

    #[test]
    fn only_paths_of_the_folder_are_files() {
        let headers = HeaderMap::new();
        assert!(page_file("page/main.js", &headers).is_some());
        for path in ["main.js", "page/", "page", "page/../main.js", "page/main.js/", ""] {
            assert!(page_file(path, &headers).is_none(), "{path}");
        }
    }
}
