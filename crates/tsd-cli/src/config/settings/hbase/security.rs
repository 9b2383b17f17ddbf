//! How the daemon proves to HBase who it is: Kerberos, or a token.

use std::path::PathBuf;

use hbase_rs::security::{
    Authentication, KerberosConfig, KerberosLogin, Protection, SecurityConfig, TokenConfig,
};
use tsd_storage_hbase::client_files::{JaasFile, JaasSection};

use super::{
    client_keys::{ClientKeys, Found, SITE, variable},
    tls,
};
use crate::config::ConfigError;

const SWITCH: &str = "hbase.security.auth.enable";
const KIND: &str = "hbase.security.authentication";
/// Kind of authentication by Kerberos.
const KERBEROS: &str = "kerberos";
const PASSWORD: &str = "hbase.regionserver.kerberos.password";
const REGION_SERVERS: [&str; 2] =
    ["hbase.kerberos.regionserver.principal", "hbase.regionserver.kerberos.principal"];
const MASTERS: &str = "hbase.master.kerberos.principal";
const PROTECTION: &str = "hbase.rpc.protection";
const FALLBACK: &str = "hbase.ipc.client.fallback-to-simple-auth-allowed";
const KEYTAB: &str = "hbase.client.keytab.file";
const PRINCIPAL: &str = "hbase.client.keytab.principal";
const TOKENS: &str = "hadoop.token.files";
const JAAS: &str = "java.security.auth.login.config";
const KRB5_CONF: &str = "java.security.krb5.conf";
/// Names of the section of the JAAS file.
const SECTION: &str = "hbase.sasl.clientconfig";
const ZOOKEEPER_SECTION: &str = "zookeeper.sasl.clientconfig";
/// Section without a configured name.
const DEFAULT_SECTION: &str = "Client";
/// Switch of the login at ZooKeeper.
pub(super) const ZOOKEEPER_SASL: &str = "zookeeper.sasl.client";

/// Keys that show that Kerberos is intended.
const OF_KERBEROS: [&str; 6] =
    [KIND, REGION_SERVERS[0], REGION_SERVERS[1], MASTERS, KEYTAB, PRINCIPAL];

/// The security of connections to HBase.
pub(super) fn security(
    keys: &ClientKeys<'_>,
    jaas: Option<&Jaas>,
) -> Result<SecurityConfig, ConfigError> {
    let authentication = match kind(keys)? {
        None => Authentication::Simple,
        Some(kind) => match kind.value.to_ascii_lowercase().as_str() {
            "simple" => Authentication::Simple,
            KERBEROS => Authentication::Kerberos(kerberos(keys, jaas)?),
            "token" => Authentication::Token(token(keys)?),
            _ if kind.value.contains('.') => {
                return Err(kind.wrong(format!(
                    "the class {} cannot be loaded, because this program is not a Java program; expected simple, \
                     kerberos or token",
                    kind.value
                )));
            }
            _ => return Err(kind.wrong("expected simple, kerberos or token")),
        },
    };
    Ok(SecurityConfig {
        authentication,
        tls: tls::of_rpc(keys)?,
        allow_simple_fallback: keys.bool(&[FALLBACK], false)?,
    })
}

/// The configured kind of authentication; `None` if the switch is off. A site file with a kind other than `simple`
/// turns the switch on.
fn kind(keys: &ClientKeys<'_>) -> Result<Option<Found>, ConfigError> {
    let of_site = keys.of_site(&[KIND])?;
    let is_on = match keys.own(&[SWITCH]) {
        Some(_) => keys.config.bool(SWITCH),
        None => of_site.as_ref().is_some_and(|kind| !kind.value.eq_ignore_ascii_case("simple")),
    };
    Ok(if is_on { keys.own(&[KIND]).or(of_site) } else { None })
}

/// Warnings about settings that contradict the intent of others.
pub(super) fn warnings(keys: &ClientKeys<'_>) -> Result<Vec<String>, ConfigError> {
    let mut warnings = Vec::new();
    let of_site = keys.of_site(&[KIND])?;
    match (keys.own(&[SWITCH]), kind(keys)?) {
        (Some(switch), None) if !keys.config.bool(SWITCH) => {
            if let Some(site) = of_site.filter(|kind| !kind.value.eq_ignore_ascii_case("simple")) {
                warnings.push(format!(
                    "{} turns off the authentication that {} asks for",
                    switch.place(),
                    site.place()
                ));
            }
        }
        (Some(switch), None) => warnings.push(format!(
            "{} is true, but {KIND} is not set, so connections to HBase have no authentication, as with OpenTSDB; \
             set {KIND} = kerberos",
            switch.place()
        )),
        (None, None) => {
            let intended = OF_KERBEROS.iter().filter_map(|key| keys.own(&[key]));
            let mut intended = intended.filter(|found| !found.value.eq_ignore_ascii_case("simple"));
            if let Some(found) = intended.next() {
                warnings.push(format!(
                    "{} has no effect, because {SWITCH} is not true: connections to HBase have no authentication; \
                     set {SWITCH} = true, or {SITE} to a site file of a secured cluster",
                    found.place()
                ));
            }
        }
        (_, Some(_)) => {}
    }
    Ok(warnings)
}

fn kerberos(keys: &ClientKeys<'_>, jaas: Option<&Jaas>) -> Result<KerberosConfig, ConfigError> {
    if let Some(password) = keys.find(&[PASSWORD])? {
        return Err(password.wrong(format!(
            "logins with a password are not supported; expected a keytab in the JAAS file, or in {KEYTAB} (ktutil or \
             kadmin's ktadd writes one)"
        )));
    }
    let Some(region_servers) = keys.find(&REGION_SERVERS)? else {
        let [name, _] = REGION_SERVERS;
        let expected = "expected the principal of the region servers, such as hbase/_HOST@REALM";
        return Err(keys.config.bad_value(name, expected));
    };
    Ok(KerberosConfig {
        master_principal: keys.find(&[MASTERS])?.map(principal).transpose()?,
        protections: protections(keys)?,
        ..KerberosConfig::new(login(keys, jaas)?, principal(region_servers)?)
    })
}

/// A principal: `service/host@REALM`, whose host and realm may be missing.
fn principal(found: Found) -> Result<String, ConfigError> {
    let (name, realm) = found.value.split_once('@').unwrap_or((&found.value, "REALM"));
    let is_wrong = name.split('/').any(str::is_empty)
        || realm.is_empty()
        || realm.contains('@')
        || found.value.contains(char::is_whitespace);
    if is_wrong {
        return Err(found.wrong("expected a principal, such as hbase/_HOST@REALM or tsdb@REALM"));
    }
    Ok(found.value)
}

fn protections(keys: &ClientKeys<'_>) -> Result<Vec<Protection>, ConfigError> {
    match keys.find(&[PROTECTION])? {
        None => Ok(vec![Protection::Authentication]),
        Some(found) => Protection::parse_list(&found.value).map_err(|error| {
            found.wrong(format!("{error}, or a list of them in order of preference"))
        }),
    }
}

fn token(keys: &ClientKeys<'_>) -> Result<TokenConfig, ConfigError> {
    let Some(files) = keys.find(&[TOKENS])? else {
        let expected = format!("expected the file of a delegation token, because {KIND} is token");
        return Err(keys.config.bad_value(TOKENS, expected));
    };
    if files.value.contains(',') {
        return Err(files.wrong("expected a single file"));
    }
    Ok(TokenConfig { file: files.path(), protections: protections(keys)? })
}

/// Where the client's tickets come from. The keytab of this program's own configuration comes before a JAAS file, and a
/// JAAS file before the keytab of the site file. Without any of them tickets come from the default cache.
fn login(keys: &ClientKeys<'_>, jaas: Option<&Jaas>) -> Result<KerberosLogin, ConfigError> {
    let own_principal = keys.own(&[PRINCIPAL]);
    if let Some(file) = keys.own(&[KEYTAB]) {
        return keytab(keys, &file);
    }
    if let Some(jaas) = jaas {
        return jaas.login(jaas.section_of_hbase()?);
    }
    if let Some(file) = keys.of_site(&[KEYTAB])? {
        return keytab(keys, &file);
    }
    match own_principal {
        Some(principal) => {
            Err(principal.wrong(format!("expected the keytab of the principal in {KEYTAB}")))
        }
        None => Ok(KerberosLogin::Cache { file: None }),
    }
}

fn keytab(keys: &ClientKeys<'_>, file: &Found) -> Result<KerberosLogin, ConfigError> {
    let principal = keys.find(&[PRINCIPAL])?.map(client_principal).transpose()?;
    Ok(KerberosLogin::Keytab { file: file.path(), principal })
}

/// The principal of this program.
fn client_principal(found: Found) -> Result<String, ConfigError> {
    if found.value.contains("_HOST") {
        return Err(found.wrong(
            "expected the whole principal of this program: _HOST is replaced in principals of servers only",
        ));
    }
    principal(found)
}

/// Path of krb5.conf, if it is configured.
pub(super) fn krb5_conf(keys: &ClientKeys<'_>) -> Option<PathBuf> {
    keys.own(&[KRB5_CONF]).map(|found| found.path())
}

/// The JAAS file.
pub(super) struct Jaas {
    file: JaasFile,
    key: Found,
    /// Section of the login at HBase.
    section: String,
    /// Section of the login at ZooKeeper.
    zookeeper_section: String,
}

impl Jaas {
    /// Reads the JAAS file, if one is configured and a login needs it. Like the other keys of Kerberos, it is ignored
    /// without the switch.
    pub(super) fn load(keys: &ClientKeys<'_>) -> Result<Option<Self>, ConfigError> {
        let is_kerberos = kind(keys)?.is_some_and(|kind| kind.value.eq_ignore_ascii_case(KERBEROS));
        if !is_kerberos && keys.set_bool(&[ZOOKEEPER_SASL])? != Some(true) {
            return Ok(None);
        }
        let Some(key) = keys.own(&[JAAS]) else { return Ok(None) };
        let file = JaasFile::read(&key.path()).map_err(|error| key.wrong(error))?;
        let section = |names: &[&str]| {
            Ok::<_, ConfigError>(keys.text(names)?.unwrap_or_else(|| DEFAULT_SECTION.to_owned()))
        };
        Ok(Some(Self {
            section: section(&[SECTION, ZOOKEEPER_SECTION])?,
            zookeeper_section: section(&[ZOOKEEPER_SECTION, SECTION])?,
            file,
            key,
        }))
    }

    fn section_of_hbase(&self) -> Result<&JaasSection, ConfigError> {
        self.file.section(&self.section).map_err(|error| self.key.wrong(error))
    }

    /// The section of the login at ZooKeeper, if the file has it.
    pub(super) fn section_of_zookeeper(&self) -> Result<&JaasSection, ConfigError> {
        self.file.section(&self.zookeeper_section).map_err(|error| self.key.wrong(error))
    }

    /// The login of a section.
    pub(super) fn login(&self, section: &JaasSection) -> Result<KerberosLogin, ConfigError> {
        let module = self.file.kerberos(section).map_err(|error| self.key.wrong(error))?;
        let option = |name: &str| module.option(name, &variable);
        let wrong = |problem: &str| {
            let problem = format!("section {}: {problem}", section.name);
            self.key.wrong(self.file.invalid(module.line, problem))
        };
        if module.is_true("useKeyTab") {
            let file = option("keyTab").ok_or_else(|| wrong("useKeyTab needs keyTab=\"FILE\""))?;
            let principal = option("principal").filter(|principal| principal != "*");
            if principal.as_ref().is_some_and(|principal| principal.contains("_HOST")) {
                return Err(wrong("_HOST is not replaced in the principal of this program"));
            }
            return Ok(KerberosLogin::Keytab { file: without_type(&file), principal });
        }
        if module.is_true("useTicketCache") {
            return Ok(KerberosLogin::Cache {
                file: option("ticketCache").as_deref().map(without_type),
            });
        }
        Err(wrong(
            "expected useKeyTab=true with keyTab=\"FILE\", or useTicketCache=true: this program cannot ask for a \
             password",
        ))
    }
}

/// The path of a keytab or cache of the type `FILE:`.
fn without_type(text: &str) -> PathBuf {
    let path = text.strip_prefix("FILE:").or_else(|| text.strip_prefix("file:"));
    PathBuf::from(path.unwrap_or(text))
}

#[cfg(test)]
mod tests;
