//! Cross-origin rules: which browser origins may call this daemon.

/// Invalid cross-origin settings.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorsError {
    /// `*` is mixed with domain names.
    #[error("cross-origin domains must be either a list of domains or a single '*'")]
    WildcardAmongDomains,
    /// The value is not a list of header names.
    #[error("cross-origin headers must be a comma separated list of header names: {headers:?}")]
    BadHeaders {
        /// The list as configured.
        headers: String,
    },
}

/// Allowed origins, and the headers they may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    origins: Origins,
    headers: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origins {
    None,
    Any,
    These(Vec<String>),
}

impl Default for Cors {
    /// Allows no origin, and OpenTSDB's default headers.
    fn default() -> Self {
        Self { origins: Origins::None, headers: Self::DEFAULT_HEADERS.to_owned() }
    }
}

impl Cors {
    /// Default of `tsd.http.request.cors_headers`.
    pub const DEFAULT_HEADERS: &str = "Authorization, Content-Type, Accept, Origin, User-Agent, DNT, Cache-Control, X-Mx-ReqToken, Keep-Alive, X-Requested-With, If-Modified-Since";

    /// Parses `tsd.http.request.cors_domains` and `tsd.http.request.cors_headers`.
    pub fn try_new(domains: &str, headers: &str) -> Result<Self, CorsError> {
        let names: Vec<String> = domains
            .split(',')
            .map(|domain| domain.trim().to_ascii_lowercase())
            .filter(|domain| !domain.is_empty())
            .collect();
        let origins = match names.as_slice() {
            [] => Origins::None,
            [one] if one == "*" => Origins::Any,
            many if many.iter().any(|name| name == "*") => {
                return Err(CorsError::WildcardAmongDomains);
            }
            _ => Origins::These(names),
        };
        let fits = headers.split(',').all(|name| {
            let name = name.trim();
            !name.is_empty()
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
        });
        if !fits {
            return Err(CorsError::BadHeaders { headers: headers.to_owned() });
        }
        Ok(Self { origins, headers: headers.to_owned() })
    }

    /// Returns true if any origin is allowed.
    #[must_use]
    pub(crate) const fn is_enabled(&self) -> bool {
        !matches!(self.origins, Origins::None)
    }

    /// Returns true if this origin is allowed.
    #[must_use]
    pub(crate) fn allows(&self, origin: &str) -> bool {
        match &self.origins {
            Origins::None => false,
            Origins::Any => true,
            Origins::These(names) => names.iter().any(|name| name.eq_ignore_ascii_case(origin)),
        }
    }

    /// Value of `Access-Control-Allow-Headers`.
    #[must_use]
    pub(crate) fn headers(&self) -> &str {
        &self.headers
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn origins_are_compared_whole_and_without_case() {
        let cors = Cors::try_new("http://Aurther.com , http://myhost", "Accept").unwrap();
        assert!(cors.is_enabled());
        assert!(cors.allows("HTTP://aurther.com"));
        assert!(!cors.allows("http://aurther.com:8080"));
        assert!(!cors.allows("*"));
        assert!(Cors::try_new("*", "Accept").unwrap().allows("anything"));
        assert!(!Cors::try_new(" ", "Accept").unwrap().is_enabled());
    }

    #[test]
    fn wildcards_among_names_and_odd_headers_are_refused() {
        assert_eq!(Cors::try_new("*,http://a", "Accept"), Err(CorsError::WildcardAmongDomains));
        for headers in ["", "*", "Accept,", "A b", "Accept;Origin"] {
            assert!(Cors::try_new("*", headers).is_err(), "{headers:?}");
        }
        assert!(Cors::try_new("", Cors::DEFAULT_HEADERS).is_ok());
    }
}
