//! Security of the session with ZooKeeper.

use hbase_rs::security::{
    Authentication, KerberosLogin, ZooKeeperKerberos, ZooKeeperSasl, ZooKeeperSecurity,
};

use super::{
    client_keys::ClientKeys,
    security::{Jaas, ZOOKEEPER_SASL},
    tls,
};
use crate::config::ConfigError;

const SERVICE: &str = "zookeeper.sasl.client.username";
const SERVER: &str = "zookeeper.server.principal";

/// The security of the session. Adds a warning to `warnings` if a login is left out.
pub(super) fn security(
    keys: &ClientKeys<'_>,
    authentication: &Authentication,
    jaas: Option<&Jaas>,
    warnings: &mut Vec<String>,
) -> Result<ZooKeeperSecurity, ConfigError> {
    let tls = tls::of_zookeeper(keys)?;
    let wanted = keys.set_bool(&[ZOOKEEPER_SASL])?;
    let login = match wanted {
        Some(false) => None,
        Some(true) => Some(required_login(keys, authentication, jaas)?),
        None => usual_login(authentication, jaas, warnings)?,
    };
    let Some(login) = login else {
        return Ok(ZooKeeperSecurity { tls, sasl: ZooKeeperSasl::None });
    };
    let mut kerberos = ZooKeeperKerberos::new(login);
    if let Some(service) = keys.text(&[SERVICE])? {
        kerberos.service = service;
    }
    kerberos.server_principal = keys.text(&[SERVER])?;
    kerberos.is_required = wanted == Some(true);
    Ok(ZooKeeperSecurity { tls, sasl: ZooKeeperSasl::Kerberos(kerberos) })
}

/// The login that the configuration asks for: of the JAAS file, or the login at HBase.
fn required_login(
    keys: &ClientKeys<'_>,
    authentication: &Authentication,
    jaas: Option<&Jaas>,
) -> Result<KerberosLogin, ConfigError> {
    if let Some(jaas) = jaas {
        return jaas.login(jaas.section_of_zookeeper()?);
    }
    if let Authentication::Kerberos(kerberos) = authentication {
        return Ok(kerberos.login.clone());
    }
    let expected = "a login at ZooKeeper needs Kerberos at HBase, or a JAAS file in \
                    java.security.auth.login.config";
    Err(match keys.find(&[ZOOKEEPER_SASL])? {
        Some(found) => found.wrong(expected),
        None => keys.config.bad_value(ZOOKEEPER_SASL, expected),
    })
}

/// With Kerberos at HBase, the login of the JAAS file if its section exists, as Java's client does. Without a JAAS file,
/// the login at HBase: a ZooKeeper that requires one is met with a keytab alone.
fn usual_login(
    authentication: &Authentication,
    jaas: Option<&Jaas>,
    warnings: &mut Vec<String>,
) -> Result<Option<KerberosLogin>, ConfigError> {
    let Authentication::Kerberos(kerberos) = authentication else { return Ok(None) };
    let Some(jaas) = jaas else { return Ok(Some(kerberos.login.clone())) };
    let Ok(section) = jaas.section_of_zookeeper() else { return Ok(None) };
    if section.kerberos().is_none() {
        warnings.push(format!(
            "section {} of the JAAS file has no Krb5LoginModule, so the session with ZooKeeper has no login; HBase's \
             znodes can be read without one unless ZooKeeper requires it",
            section.name
        ));
        return Ok(None);
    }
    jaas.login(section).map(Some)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::path::PathBuf;

    use tsd_storage_hbase::HBaseDiscovery;

    use super::*;
    use crate::config::settings::hbase::test_values::{
        Files, KERBEROS, QUORUM, check_refused, connection,
    };

    fn sasl(text: &str) -> Option<ZooKeeperKerberos> {
        match connection(text).unwrap().discovery {
            HBaseDiscovery::ZooKeeper {
                security: ZooKeeperSecurity { sasl: ZooKeeperSasl::Kerberos(kerberos), .. },
                ..
            } => Some(kerberos),
            _ => None,
        }
    }

    fn keytab(file: &str) -> KerberosLogin {
        KerberosLogin::Keytab { file: PathBuf::from(file), principal: None }
    }

    const OPTIONS: &str = "useKeyTab=true keyTab=\"/z.keytab\"";

    #[test]
    fn a_login_is_tried_with_kerberos_and_a_section() {
        let files = Files::new();
        let jaas = files.jaas("Client", OPTIONS);
        let tried = sasl(&format!("{KERBEROS}{jaas}")).unwrap();
        assert_eq!(
            tried,
            ZooKeeperKerberos { is_required: false, ..ZooKeeperKerberos::new(keytab("/z.keytab")) }
        );
        assert_eq!(sasl(&format!("{QUORUM}{jaas}")), None, "without Kerberos at HBase");
        assert_eq!(sasl(&format!("{KERBEROS}{jaas}zookeeper.sasl.client = false\n")), None);
        let by_keytab = format!("{KERBEROS}hbase.client.keytab.file = /h.keytab\n");
        let as_at_hbase = sasl(&by_keytab).unwrap();
        assert_eq!((as_at_hbase.login, as_at_hbase.is_required), (keytab("/h.keytab"), false));
        assert_eq!(
            sasl(&format!("{by_keytab}{jaas}zookeeper.sasl.clientconfig = Other\n")),
            None,
            "without the section"
        );
        assert_eq!(sasl(&format!("{by_keytab}{jaas}")).unwrap().login, keytab("/z.keytab"));
    }

    #[test]
    fn a_configured_login_is_required() {
        let files = Files::new();
        let on = "zookeeper.sasl.client = true\n";
        let of_hbase =
            sasl(&format!("{KERBEROS}hbase.client.keytab.file = /h.keytab\n{on}")).unwrap();
        assert_eq!((of_hbase.login, of_hbase.is_required), (keytab("/h.keytab"), true));
        let jaas = files.jaas("Zk", OPTIONS);
        let section = "zookeeper.sasl.clientconfig = Zk\n";
        let alone = sasl(&format!("{QUORUM}{jaas}{section}{on}")).unwrap();
        assert_eq!(alone.login, keytab("/z.keytab"));
        check_refused(&format!("{QUORUM}{on}"), &["zookeeper.sasl.client", "needs Kerberos"]);
        check_refused(&format!("{QUORUM}{jaas}{on}"), &["no section Client; it has Zk"]);
    }

    #[test]
    fn principals_of_the_servers_are_settings() {
        let files = Files::new();
        let lines = "zookeeper.sasl.client.username = zk\n\
                     zookeeper.server.principal = zookeeper/hadoop.hadoop.com\n";
        let sasl = sasl(&format!("{KERBEROS}{}{lines}", files.jaas("Client", OPTIONS))).unwrap();
        assert_eq!(sasl.service, "zk");
        assert_eq!(sasl.server_principal.as_deref(), Some("zookeeper/hadoop.hadoop.com"));
    }

    #[test]
    fn a_login_by_digest_is_left_out_with_a_warning() {
        let files = Files::new();
        let text = "Hbase { com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true; };\n\
                    Client { org.apache.zookeeper.server.auth.DigestLoginModule required username=u password=p; };\n";
        let path = files.write("jaas.conf", text);
        let lines = format!(
            "{KERBEROS}hbase.sasl.clientconfig = Hbase\nzookeeper.sasl.clientconfig = Client\n\
             java.security.auth.login.config = {path}\n"
        );
        assert_eq!(sasl(&lines), None);
        let warnings = connection(&lines).unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains("section Client")), "{warnings:?}");
        check_refused(
            &format!("{lines}zookeeper.sasl.client = true\n"),
            &["jaas.conf line 2", "DigestLoginModule; expected a Krb5LoginModule"],
        );
    }
}
