//! Principals of servers.

/// Placeholder for the host of a server.
const HOST: &str = "_HOST";

/// Returns the principal of a server: `service/_HOST@REALM` gets its host, in lower case as Kerberos has hosts. DNS
/// is not asked. Principals without the placeholder are used as they are.
pub(crate) fn service_principal(configured: &str, host: &str) -> String {
    let (name, realm) = match configured.split_once('@') {
        Some((name, realm)) => (name, Some(realm)),
        None => (configured, None),
    };
    let Some(service) = name.strip_suffix(HOST).and_then(|rest| rest.strip_suffix('/')) else {
        return configured.to_owned();
    };
    let principal = format!("{service}/{}", host.to_lowercase());
    realm.map_or_else(|| principal.clone(), |realm| format!("{principal}@{realm}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(configured: &str, expected: &str) {
        assert_eq!(service_principal(configured, "Node1.Example.COM"), expected);
    }

    #[test]
    fn hosts_are_replaced_in_lower_case() {
        check("hbase/_HOST@LAB.TEST", "hbase/node1.example.com@LAB.TEST");
        check("hbase/_HOST", "hbase/node1.example.com");
        check("hbase/_HOST@", "hbase/node1.example.com@");
    }

    #[test]
    fn other_principals_stay() {
        let literal = "hbase/hadoop.hadoop.com@HADOOP.COM";
        for principal in [literal, "hbase", "hbase/_HOSTS@R", "hbase/x_HOST@R", "_HOST@R", ""] {
            check(principal, principal);
        }
    }
}
