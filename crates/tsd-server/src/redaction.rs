//! Hides credentials in values of the configuration, wherever they are shown.

/// Replaces a value that is secret as a whole.
const HIDDEN: &str = "********";
/// Replaces the secret text within a value.
const MASK: &str = "***";
/// Words in a key, or in the name of a parameter, that mark its value as secret.
const SECRET_WORDS: [&str; 10] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "credential",
    "authorization",
    "api_key",
    "apikey",
    "access_key",
    "private_key",
];

/// Returns the value of a key without secrets: hides passwords, tokens and keys, and the user, the password and secret
/// parameters of URLs.
#[must_use]
pub fn redacted(key: &str, value: &str) -> String {
    if !value.is_empty() && (is_secret(key) || value.contains("-----BEGIN ")) {
        return HIDDEN.to_owned();
    }
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("://") {
        let text = before.trim_end_matches(is_scheme_char);
        push_text(&mut out, text);
        out.push_str(before.get(text.len()..).unwrap_or_default());
        out.push_str("://");
        let end = url_end(after, text.chars().next_back());
        let (url, behind) = after.split_at_checked(end).unwrap_or((after, ""));
        push_url(&mut out, url);
        rest = behind;
    }
    push_text(&mut out, rest);
    out
}

fn is_scheme_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "+-.".contains(c)
}

/// Finds the end of a URL, whose text begins after its scheme. A URL ends at white space, at the quote that stands
/// before it, or before the next URL of a list. A password may have any other character.
fn url_end(text: &str, before: Option<char>) -> usize {
    let quote = before.filter(|c| "\"'".contains(*c));
    let ends = |(at, c): &(usize, char)| {
        let next = || text.get(at + 1..).unwrap_or_default();
        c.is_whitespace() || Some(*c) == quote || (",;".contains(*c) && begins_with_scheme(next()))
    };
    text.char_indices().find(ends).map_or(text.len(), |(at, _)| at)
}

fn begins_with_scheme(text: &str) -> bool {
    let rest = text.trim_start_matches(is_scheme_char);
    rest.len() < text.len() && rest.starts_with("://")
}

/// Appends text outside URLs. Masks the credentials of a URL without a scheme.
fn push_text(out: &mut String, text: &str) {
    match text.rsplit_once('@').filter(|(user, _)| user.contains(':')) {
        Some((_, host)) => {
            out.push_str(MASK);
            out.push('@');
            out.push_str(host);
        }
        None => out.push_str(text),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Appends a URL, whose text begins after its scheme.
fn push_url(out: &mut String, url: &str) {
    let path_at = url.find(['/', '?', '#']).unwrap_or(url.len());
    let (authority, path) = url.split_at_checked(path_at).unwrap_or((url, ""));
    let is_port = |port: &str| port.bytes().all(|b| b.is_ascii_digit() || b == b']');
    let has_port = authority.rsplit_once(':').is_none_or(|(_, port)| is_port(port));
    // Without a valid port, the password has an unescaped slash, and the host begins later.
    let shown = if authority.contains('@') || has_port { authority } else { url };
    let path = if shown.len() == url.len() { "" } else { path };
    match shown.rsplit_once('@') {
        Some((_, host)) => {
            out.push_str(MASK);
            out.push('@');
            push_parameters(out, host);
        }
        None => push_parameters(out, shown),
    }
    push_parameters(out, path);
}

/// Appends the rest of a URL, without the values of secret parameters.
fn push_parameters(out: &mut String, text: &str) {
    const SEPARATORS: [char; 4] = ['?', '&', ';', '#'];
    for (at, part) in text.split_inclusive(SEPARATORS).enumerate() {
        let (body, separator) = match part.strip_suffix(SEPARATORS) {
            Some(body) => (body, part.get(body.len()..).unwrap_or_default()),
            None => (part, ""),
        };
        match body.split_once('=').filter(|(name, _)| at > 0 && is_secret(name)) {
            Some((name, _)) => {
                out.push_str(name);
                out.push('=');
                out.push_str(MASK);
            }
            None => out.push_str(body),
        }
        out.push_str(separator);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &str, value: &str, expected: &str) {
        assert_eq!(redacted(key, value), expected, "{key} = {value}");
    }

    #[test]
    fn urls_are_shown_without_their_users() {
        let key = "tsd.rtpublisher.url";
        for (value, expected) in [
            ("http://host:80/in?x=1#y", "http://host:80/in?x=1#y"),
            ("http://user:password@host/in", "http://***@host/in"),
            ("http://token@host:80", "http://***@host:80"),
            ("https://a:b@c@host/", "https://***@host/"),
            ("http://u:pa/ss@host/", "http://***@host/"),
            ("http://[::1]:80/a@b", "http://[::1]:80/a@b"),
            ("http://h/a@b", "http://h/a@b"),
            ("http://u:p@a/,http://u:p@b/ x", "http://***@a/,http://***@b/ x"),
            ("http://h/in?token=abc&x=1&Password=y#z", "http://h/in?token=***&x=1&Password=***#z"),
            ("user:password@host:4242", "***@host:4242"),
            ("/path/with@sign", "/path/with@sign"),
            ("", ""),
            ("://", "://"),
        ] {
            check(key, value, expected);
        }
    }

    /// Issue 37: a comma, a semicolon or a quote ended the URL, and the rest of the password was shown.
    #[test]
    fn passwords_with_separators_of_lists_are_hidden() {
        let key = "tsd.rtpublisher.url";
        for (value, expected) in [
            ("http://user:pa,ss@host:9/in", "http://***@host:9/in"),
            ("http://user:pa;ss@host:9/in", "http://***@host:9/in"),
            ("http://user:pa'ss@host:9/in", "http://***@host:9/in"),
            ("http://user:p\"ss@host:9/in", "http://***@host:9/in"),
            ("http://user:12,34ss@host:9/in", "http://***@host:9/in"),
            ("http://u:p,q@a;https://u:r;s@b", "http://***@a;https://***@b"),
            ("u:p@a,http://u:q@b", "***@a,http://***@b"),
            ("[\"http://u:p@a\",\"http://u:q@b\"]", "[\"http://***@a\",\"http://***@b\"]"),
            ("'http://u:p@a' x", "'http://***@a' x"),
            ("http://host/in?k=1;token=abc", "http://host/in?k=1;token=***"),
            ("http://host/in?k=1,2;x=y", "http://host/in?k=1,2;x=y"),
            ("http://host/in?pwd=abc", "http://host/in?pwd=***"),
        ] {
            check(key, value, expected);
        }
    }

    #[test]
    fn secret_keys_have_no_value() {
        for key in ["a.passWord", "tsd.API-key", "x.secret.y", "my.token", "hbase.passphrase"] {
            check(key, "x", HIDDEN);
            check(key, "", "");
        }
        check("any", "-----BEGIN PRIVATE KEY-----\nabc", HIDDEN);
        check("tsd.cluster.tls.key", "/etc/tsdb/key.pem", "/etc/tsdb/key.pem");
        check("tsd.http.request.max_chunk", "16777216", "16777216");
    }
}
