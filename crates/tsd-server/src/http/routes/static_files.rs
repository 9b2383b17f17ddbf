//! `/s/<path>` and `/favicon.ico`: files below `tsd.http.staticroot`, and files of the program.
//!
//! A file of the static root hides a file of the program with the same path. The daemon serves only regular
//! files below the root, also behind symbolic links. It has no listings of directories, no ranges and no
//! conditional requests. Like OpenTSDB, it does not decode `%` escapes in paths.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use bytes::Bytes;
use futures_util::stream;
use hyper::{
    Method, StatusCode,
    header::{AGE, CACHE_CONTROL, HeaderValue},
};
use tokio::task::spawn_blocking;
use tsd_protocol::ApiError;

use super::page;
use crate::{
    http::{
        error::HttpError,
        request::HttpRequest,
        response::{Chunks, ContentType, HttpResponse, ResponseAborted},
    },
    route::Route,
};

/// Bytes of a file to read, and hold in memory, at a time.
const CHUNK_BYTES: u64 = 64 << 10;
/// How long a client may cache a file of the static root, in seconds: a year, as in OpenTSDB.
const MAX_AGE_SECS: u32 = 31_536_000;
/// Length of `/s/`: the minimum length of a path, and where the search for `..` begins.
const PREFIX_BYTES: usize = 3;

/// A file of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmbeddedFile {
    pub(crate) content_type: ContentType,
    pub(crate) bytes: &'static [u8],
}

/// Files of the program by their path below `/s/`.
const EMBEDDED: &[(&str, EmbeddedFile)] = &[(
    "favicon.ico",
    EmbeddedFile { content_type: ContentType::Icon, bytes: include_bytes!("favicon.ico") },
)];

/// Returns the file of the program at a path below `/s/`.
pub(crate) fn embedded(path: &str) -> Option<EmbeddedFile> {
    EMBEDDED.iter().find(|(known, _)| *known == path).map(|(_, file)| *file)
}

/// Serves a file.
pub(super) async fn static_file(request: &HttpRequest<'_>) -> Result<HttpResponse, HttpError> {
    request.allow(&[Method::GET])?;
    let uri = request.uri.path_and_query().map_or("", |uri| uri.as_str());
    let path = match request.path.route {
        Route::Favicon => "favicon.ico",
        _ => path_below_root(uri)?,
    };
    if let Some(root) = &request.state.config.static_root {
        let (root, owned) = (root.clone(), path.to_owned());
        let opened = spawn_blocking(move || open(&root, &owned)).await;
        match opened.map_err(io::Error::other).flatten() {
            Ok(Some(file)) => {
                let max_age = if uri.contains("nocache") { 0 } else { MAX_AGE_SECS };
                return Ok(file.response(content_type(path), max_age));
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, path, "a static file cannot be read"),
        }
    }
    if let Some(response) = page::page_file(path, request.headers) {
        return Ok(response);
    }
    if let Some(EmbeddedFile { content_type, bytes }) = embedded(path) {
        // Another version of the program may have other files under the same names.
        return Ok(HttpResponse::new(StatusCode::OK, content_type, Bytes::from_static(bytes))
            .with_header(CACHE_CONTROL, HeaderValue::from_static("no-cache")));
    }
    // The error is JSON although the path is outside the API, as in OpenTSDB.
    let missing = ApiError::page_not_found().render();
    Ok(HttpResponse::new(StatusCode::NOT_FOUND, ContentType::LegacyJson, missing))
}

/// Returns the path below the root that a URI names. Fails if the URI is too short or contains `..`.
fn path_below_root(uri: &str) -> Result<&str, ApiError> {
    if uri.len() < PREFIX_BYTES {
        return Err(ApiError::new(400, format!("URI too short <code>{uri}</code>")));
    }
    if uri.get(PREFIX_BYTES..).is_some_and(|rest| rest.contains("..")) {
        return Err(ApiError::new(400, format!("Malformed URI <code>{uri}</code>")));
    }
    let path = uri.split('?').next().unwrap_or_default();
    // Removes `/s` and further slashes, since an absolute path would replace the root.
    Ok(path.get(2..).unwrap_or_default().trim_start_matches('/'))
}

/// Returns the type of a file by its suffix. OpenTSDB knows these six.
fn content_type(path: &str) -> ContentType {
    let known = [
        (".png", ContentType::Png),
        ("html", ContentType::Html),
        (".css", ContentType::Css),
        (".js", ContentType::Script),
        (".gif", ContentType::Gif),
        (".ico", ContentType::Icon),
    ];
    let found = known.into_iter().find(|(suffix, _)| path.ends_with(suffix));
    found.map_or(ContentType::Text, |(_, content_type)| content_type)
}

/// An open file.
#[derive(Debug)]
struct OpenFile {
    file: File,
    bytes: u64,
    modified: Option<SystemTime>,
}

/// Opens a regular file below a directory; `None` if the path names anything else.
fn open(root: &Path, path: &str) -> io::Result<Option<OpenFile>> {
    let root = fs::canonicalize(root)?;
    let Some(path) = regular_file_below(&root, path)? else { return Ok(None) };
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    Ok(Some(OpenFile { bytes: metadata.len(), modified: metadata.modified().ok(), file }))
}

/// Resolves the symbolic links of a path; `None` unless it is a regular file below `root`. The check comes
/// before the open, since opening a pipe would block.
fn regular_file_below(root: &Path, path: &str) -> io::Result<Option<PathBuf>> {
    if path.is_empty() {
        return Ok(None);
    }
    let path = match fs::canonicalize(root.join(path)) {
        Ok(path) => path,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::NotADirectory
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::InvalidFilename
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let is_served = path.starts_with(root) && fs::metadata(&path)?.is_file();
    Ok(is_served.then_some(path))
}

impl OpenFile {
    fn response(self, content_type: ContentType, max_age: u32) -> HttpResponse {
        let Self { file, bytes, modified } = self;
        let age = modified.and_then(|at| SystemTime::now().duration_since(at).ok());
        let mut response = HttpResponse::file(content_type, bytes, chunks(file, bytes));
        if let Some(age) = age {
            response = response.with_header(AGE, HeaderValue::from(age.as_secs()));
        }
        match HeaderValue::try_from(format!("max-age={max_age}")) {
            Ok(value) => response.with_header(CACHE_CONTROL, value),
            // Unreachable, since the text is ASCII.
            Err(_) => response,
        }
    }
}

/// Streams the first `bytes` of a file. The response fails if the file becomes shorter while it is sent.
fn chunks(file: File, bytes: u64) -> Chunks {
    Box::pin(stream::try_unfold((file, bytes), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let read = move || {
            let mut chunk = Vec::new();
            (&mut file).take(left.min(CHUNK_BYTES)).read_to_end(&mut chunk)?;
            Ok((file, chunk))
        };
        let aborted = |error: io::Error| ResponseAborted(error.to_string());
        let read = spawn_blocking(read).await.map_err(io::Error::other).flatten();
        let (file, chunk) = read.map_err(aborted)?;
        if chunk.is_empty() {
            return Err(aborted(io::ErrorKind::UnexpectedEof.into()));
        }
        let left = left.saturating_sub(chunk.len() as u64);
        Ok(Some((Bytes::from(chunk), (file, left))))
    }))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn paths_are_those_below_the_prefix() {
        for (uri, path) in [
            ("/s/a.js", "a.js"),
            ("/s/", ""),
            ("/s//etc/passwd", "etc/passwd"),
            ("/s/a/b?x=1", "a/b"),
            ("/s?x", ""),
            ("/s/%2e%2e/x", "%2e%2e/x"),
        ] {
            assert_eq!(path_below_root(uri).unwrap(), path, "{uri}");
        }
        for uri in ["/s", "/s/../x", "/s/a..b", "/s/a?..", "/s/.."] {
            assert_eq!(path_below_root(uri).unwrap_err().status, 400, "{uri}");
        }
    }

    #[test]
    fn only_regular_files_below_the_root_are_opened() {
        let outside = std::env::temp_dir().join(format!("static-{}", std::process::id()));
        let root = outside.join("root");
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(outside.join("secret"), "x").unwrap();
        fs::write(root.join("a.css"), "b{}").unwrap();
        std::os::unix::fs::symlink("../secret", root.join("up")).unwrap();
        std::os::unix::fs::symlink("..", root.join("out")).unwrap();
        std::os::unix::fs::symlink("../a.css", root.join("sub/in.css")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        for (path, served) in [
            ("a.css", true),
            ("sub/in.css", true),
            ("sub", false),
            ("", false),
            (".", false),
            ("a.css/", false),
            ("up", false),
            ("out/secret", false),
            ("../secret", false),
            ("missing", false),
            (&"long".repeat(1_000), false),
        ] {
            assert_eq!(open(&root, path).unwrap().is_some(), served, "{path}");
        }
        assert!(open(&root, "loop").is_err());
        fs::remove_dir_all(outside).unwrap();
    }

    #[test]
    fn types_are_those_of_opentsdb() {
        for (path, expected) in [
            ("a.js", ContentType::Script),
            ("a.html", ContentType::Html),
            ("a.css", ContentType::Css),
            ("a.jpg", ContentType::Text),
            ("a", ContentType::Text),
        ] {
            assert_eq!(content_type(path), expected, "{path}");
        }
    }

    #[test]
    fn icon_is_one() {
        let icon = embedded("favicon.ico").unwrap();
        assert_eq!(icon.bytes.get(..4), Some(&[0, 0, 1, 0][..]));
        assert!(embedded("").is_none());
    }
}
