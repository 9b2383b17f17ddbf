//! Tickets of the client: from a keytab or from a cache.

use std::{
    ffi::{CStr, CString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    ptr,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    api::{Api, INDEFINITE, INITIATE, MECHANISMS, RawCredential, RawElement, RawStore},
    error::{Error, ErrorKind, Operation},
    keytab::Keytab,
    memory_cache::MemoryCache,
    name::Name,
};

/// The client's identity and its tickets at one time.
///
/// Take [renewed](Self::renewed) ones for each new connection.
#[derive(Clone, Debug)]
pub struct Credentials {
    handle: Arc<CredentialHandle>,
    source: Source,
    principal: String,
    acquired: Instant,
    lifetime: Duration,
}

/// Where the tickets come from.
#[derive(Clone, Debug)]
enum Source {
    Keytab {
        file: PathBuf,
        principal: Option<String>,
        full_principal: String,
        cache: Arc<MemoryCache>,
    },
    Cache {
        file: Option<PathBuf>,
    },
}

impl Credentials {
    /// Gets tickets with the key of a principal in a keytab, and keeps them in memory. Without a principal, the first
    /// one of the keytab is used. A principal without a realm is of the default realm.
    ///
    /// Blocks on the network.
    pub fn keytab(file: &Path, principal: Option<&str>) -> Result<Self, Error> {
        let keytab = Keytab::read(file)?;
        let api = Api::get()?;
        let wanted =
            principal.map_or_else(|| keytab.first().map(str::to_owned), |p| Ok(p.to_owned()))?;
        let full_principal = Name::principal(api, &wanted)?.text()?;
        keytab.find(&full_principal)?;
        Self::from_keytab(Source::Keytab {
            file: keytab.file().to_owned(),
            principal: principal.map(str::to_owned),
            full_principal,
            cache: Arc::new(MemoryCache::unique(api)?),
        })
    }

    /// Reads the tickets of a cache that somebody else renews. The file may have a type before it, such as
    /// `KEYRING:` or `DIR:`. Without a file, `KRB5CCNAME` and the configuration name the cache.
    pub fn cache(file: Option<&Path>) -> Result<Self, Error> {
        let source = Source::Cache { file: file.map(Path::to_owned) };
        let api = Api::get()?;
        let Some(file) = file else {
            return Self::inquired(CredentialHandle::acquire(api, None, &[], None)?, source);
        };
        let cache = cache_name(file)?;
        CredentialHandle::acquire(api, None, &[(c"ccache", &cache)], None)
            .and_then(|handle| Self::inquired(handle, source))
            .map_err(|e| e.about(&format!("ticket cache {}", cache.to_string_lossy())))
    }

    /// Acquires the same credentials again. Tickets of a keytab that are good for a while are used again, others are
    /// replaced; a cache is read again.
    ///
    /// Blocks on the network if a keytab needs tickets.
    pub fn renewed(&self) -> Result<Self, Error> {
        match &self.source {
            Source::Cache { file } => Self::cache(file.as_deref()),
            Source::Keytab { file, principal, .. } => {
                match Self::from_keytab(self.source.clone()) {
                    // The library hides why it got no new tickets while it has old ones.
                    Err(e) if e.kind() == ErrorKind::Expired => {
                        Self::keytab(file, principal.as_deref())
                    }
                    result => result,
                }
            }
        }
    }

    fn from_keytab(source: Source) -> Result<Self, Error> {
        let Source::Keytab { file, full_principal, cache, .. } = &source else {
            return Err(Error::own(ErrorKind::Other, "no keytab".to_owned()));
        };
        let api = Api::get()?;
        let name = Name::principal(api, full_principal)?;
        let mut keytab = b"FILE:".to_vec();
        keytab.extend_from_slice(file.as_os_str().as_bytes());
        let keytab = CString::new(keytab).map_err(|_| Error::invalid("the path of a keytab"))?;
        let store = [(c"client_keytab", &*keytab), (c"ccache", cache.name())];
        let cache = Some(Arc::clone(cache));
        Self::inquired(CredentialHandle::acquire(api, Some(&name), &store, cache)?, source)
    }

    fn inquired(handle: CredentialHandle, source: Source) -> Result<Self, Error> {
        let (principal, lifetime) = handle.inquire()?;
        let acquired = Instant::now();
        Ok(Self { handle: Arc::new(handle), source, principal, acquired, lifetime })
    }

    /// Name of the client, with its realm.
    #[must_use]
    pub fn principal(&self) -> &str {
        &self.principal
    }

    /// Time until the tickets expire, as of now.
    #[must_use]
    pub fn lifetime(&self) -> Duration {
        self.lifetime.saturating_sub(self.acquired.elapsed())
    }

    pub(crate) fn handle(&self) -> Arc<CredentialHandle> {
        Arc::clone(&self.handle)
    }
}

/// Returns a name of a cache with its type.
fn cache_name(file: &Path) -> Result<CString, Error> {
    let bytes = file.as_os_str().as_bytes();
    let kind = bytes.split(|&byte| byte == b':').next().unwrap_or_default();
    let has_kind =
        kind.len() < bytes.len() && !kind.is_empty() && kind.iter().all(u8::is_ascii_uppercase);
    let mut name = if has_kind { Vec::new() } else { b"FILE:".to_vec() };
    name.extend_from_slice(bytes);
    CString::new(name).map_err(|_| Error::invalid("the path of a ticket cache"))
}

/// Credentials of the library, and the cache that they use.
#[derive(Debug)]
pub(crate) struct CredentialHandle {
    api: &'static Api,
    raw: *mut RawCredential,
    /// Outlives the credentials: it is destroyed after them.
    _cache: Option<Arc<MemoryCache>>,
}

// SAFETY: credentials belong to no thread.
unsafe impl Send for CredentialHandle {}
// SAFETY: the library locks credentials in every call that reads or refreshes them.
unsafe impl Sync for CredentialHandle {}

impl CredentialHandle {
    /// Acquires credentials of a principal from a store of keys and values. Without a principal, the store decides.
    pub(crate) fn acquire(
        api: &'static Api,
        principal: Option<&Name>,
        store: &[(&CStr, &CStr)],
        cache: Option<Arc<MemoryCache>>,
    ) -> Result<Self, Error> {
        Self::acquire_for(api, INITIATE, principal, store).map(|raw| Self {
            api,
            raw,
            _cache: cache,
        })
    }

    /// Acquires credentials to accept contexts.
    #[cfg(feature = "testing")]
    pub(crate) fn acquire_to_accept(
        api: &'static Api,
        store: &[(&CStr, &CStr)],
    ) -> Result<Self, Error> {
        Self::acquire_for(api, crate::api::ACCEPT, None, store).map(|raw| Self {
            api,
            raw,
            _cache: None,
        })
    }

    fn acquire_for(
        api: &'static Api,
        usage: std::ffi::c_int,
        principal: Option<&Name>,
        store: &[(&CStr, &CStr)],
    ) -> Result<*mut RawCredential, Error> {
        let elements: Vec<RawElement> = store
            .iter()
            .map(|(key, value)| RawElement { key: key.as_ptr(), value: value.as_ptr() })
            .collect();
        let store = RawStore { count: elements.len() as u32, elements: elements.as_ptr() };
        let (mut minor, mut raw) = (0, ptr::null_mut());
        // SAFETY: the name is valid or null. All other pointers are valid for the call or null, which requests nothing.
        // `raw` is set to null on failure.
        let major = unsafe {
            (api.gss_acquire_cred_from)(
                &raw mut minor,
                principal.map_or(ptr::null_mut(), Name::as_ptr),
                INDEFINITE,
                &raw const MECHANISMS,
                usage,
                if elements.is_empty() { ptr::null() } else { &raw const store },
                &raw mut raw,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        Error::check(api, Operation::Login, major, minor)?;
        Ok(raw)
    }

    /// Returns the principal and how long its tickets are good.
    fn inquire(&self) -> Result<(String, Duration), Error> {
        let (mut minor, mut raw, mut seconds) = (0, ptr::null_mut(), 0);
        // SAFETY: the credentials are valid. All other pointers are valid for the call or null, which requests nothing.
        let major = unsafe {
            (self.api.gss_inquire_cred)(
                &raw mut minor,
                self.raw,
                &raw mut raw,
                &raw mut seconds,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        // SAFETY: the library has set `raw` to null or to a name that the caller releases.
        let name = unsafe { Name::from_raw(self.api, raw) };
        Error::check(self.api, Operation::Login, major, minor)?;
        Ok((name.text()?, Duration::from_secs(seconds.into())))
    }

    pub(crate) fn as_ptr(&self) -> *mut RawCredential {
        self.raw
    }
}

impl Drop for CredentialHandle {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the credentials are owned by this value, and nothing uses them any more.
        unsafe { (self.api.gss_release_cred)(&raw mut minor, &raw mut self.raw) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(file: &str, expected: &str) {
        let name = cache_name(Path::new(file)).expect("a name");
        assert_eq!(name.to_str(), Ok(expected));
    }

    #[test]
    fn names_of_caches_have_a_type() {
        check("/tmp/krb5cc_0", "FILE:/tmp/krb5cc_0");
        check("relative", "FILE:relative");
        check("FILE:/tmp/a", "FILE:/tmp/a");
        check("KEYRING:persistent:0", "KEYRING:persistent:0");
        check("/odd/a:b", "FILE:/odd/a:b");
        check("a:b", "FILE:a:b");
        check(":", "FILE::");
    }

    #[test]
    fn zero_bytes_are_rejected() {
        assert!(cache_name(Path::new("a\0b")).is_err());
    }
}
