#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use super::*;
use crate::config::{
    Config, KeyEffect, keys as all_keys,
    settings::hbase::test_values::{Files, KERBEROS, QUORUM, check_refused, connection, kerberos},
};

fn keytab(file: &str, principal: Option<&str>) -> KerberosLogin {
    KerberosLogin::Keytab { file: file.into(), principal: principal.map(str::to_owned) }
}

fn authentication(text: &str) -> Authentication {
    connection(text).unwrap().security.authentication
}

fn warnings(text: &str) -> Vec<String> {
    connection(text).unwrap().warnings
}

#[test]
fn the_keys_of_a_secured_opentsdb_are_understood() {
    let files = Files::new();
    let jaas = files.jaas(
        "Client",
        "useKeyTab=true useTicketCache=false keyTab=\"/etc/tsdb.keytab\" principal=\"tsdb@LAB.TEST\" doNotPrompt=true",
    );
    let found = kerberos(&format!(
        "{KERBEROS}hbase.rpc.protection = privacy\nhbase.sasl.clientconfig = Client\n{jaas}"
    ));
    let login = keytab("/etc/tsdb.keytab", Some("tsdb@LAB.TEST"));
    let expected = KerberosConfig {
        protections: vec![Protection::Privacy],
        ..KerberosConfig::new(login, "hbase/_HOST@LAB.TEST")
    };
    assert_eq!(found, expected);
    assert!(warnings(KERBEROS).is_empty());
}

#[test]
fn without_the_switch_the_rest_is_ignored_with_a_warning() {
    let without = KERBEROS.replace("auth.enable = true", "auth.enable = false");
    assert_eq!(authentication(&without), Authentication::Simple);
    let unset = format!(
        "{QUORUM}hbase.security.authentication = kerberos\nhbase.regionserver.kerberos.password = x\n"
    );
    assert_eq!(authentication(&unset), Authentication::Simple);
    let [warning] = &warnings(&unset)[..] else { panic!("{:?}", warnings(&unset)) };
    for part in [
        "hbase.security.authentication (opentsdb.conf line 2) has no effect",
        "hbase.security.auth.enable",
    ] {
        assert!(warning.contains(part), "{warning}");
    }
    for key in ["hbase.kerberos.regionserver.principal", "hbase.client.keytab.file"] {
        assert_eq!(warnings(&format!("{QUORUM}{key} = x\n")).len(), 1, "{key}");
    }
    for quiet in ["hbase.security.authentication = simple", "hbase.rpc.protection = privacy"] {
        assert!(warnings(&format!("{QUORUM}{quiet}\n")).is_empty(), "{quiet}");
    }
}

#[test]
fn the_switch_alone_is_simple_as_in_opentsdb() {
    let on = format!("{QUORUM}hbase.security.auth.enable = true\n");
    let user = "hbase.security.simple.username = alice\n";
    let found = connection(&format!("{on}{user}")).unwrap();
    assert_eq!(
        (found.security.authentication, found.user.as_str()),
        (Authentication::Simple, "alice")
    );
    assert!(
        found.warnings.iter().any(|warning| warning.contains("authentication is not set")),
        "{:?}",
        found.warnings
    );
    assert!(warnings(&format!("{on}hbase.security.authentication = Simple\n")).is_empty());
    let own = connection(&format!("{on}{user}tsd.storage.hbase.user = bob\n")).unwrap();
    assert_eq!(own.user, "bob");
    assert_ne!(connection(&format!("{QUORUM}{user}")).unwrap().user, "alice");
}

#[test]
fn a_site_file_with_kerberos_turns_it_on() {
    let files = Files::new();
    let site = files.site(&[
        ("hbase.zookeeper.quorum", "zk1"),
        ("hbase.security.authentication", "kerberos"),
        ("hbase.regionserver.kerberos.principal", "hbase/hadoop.hadoop.com@HADOOP.COM"),
        ("hbase.master.kerberos.principal", "hbase/master@HADOOP.COM"),
        ("hbase.rpc.protection", "privacy,integrity"),
        ("hbase.client.keytab.file", "user.keytab"),
        ("hbase.client.keytab.principal", "tsdb"),
    ]);
    let found = kerberos(&site);
    assert_eq!(found.login, keytab("user.keytab", Some("tsdb")));
    assert_eq!(found.region_server_principal, "hbase/hadoop.hadoop.com@HADOOP.COM");
    assert_eq!(found.master_principal.as_deref(), Some("hbase/master@HADOOP.COM"));
    assert_eq!(found.protections, [Protection::Privacy, Protection::Integrity]);
    assert!(warnings(&site).is_empty());
    let off = format!("{site}hbase.security.auth.enable = false\n");
    assert_eq!(authentication(&off), Authentication::Simple);
    let [warning] = &warnings(&off)[..] else { panic!("{:?}", warnings(&off)) };
    assert!(
        warning.contains("opentsdb.conf line 2") && warning.contains("hbase-site.xml line 3"),
        "{warning}"
    );
    let simple = format!("{site}hbase.security.authentication = simple\n");
    assert_eq!(authentication(&simple), Authentication::Simple);
    let own = format!(
        "{site}hbase.kerberos.regionserver.principal = hbase/a@B\nhbase.rpc.protection = integrity\n"
    );
    let found = kerberos(&own);
    assert_eq!(found.region_server_principal, "hbase/a@B");
    assert_eq!(found.protections, [Protection::Integrity]);
}

#[test]
fn a_site_file_without_security_turns_nothing_on() {
    let files = Files::new();
    let site = files
        .site(&[("hbase.zookeeper.quorum", "zk1"), ("hbase.security.authentication", "simple")]);
    assert_eq!(authentication(&site), Authentication::Simple);
    assert!(warnings(&site).is_empty());
}

#[test]
fn principals_of_servers_have_two_names() {
    let without =
        KERBEROS.replace("hbase.kerberos.regionserver.principal = hbase/_HOST@LAB.TEST\n", "");
    check_refused(&without, &["hbase.kerberos.regionserver.principal", "hbase/_HOST@REALM"]);
    let second = "hbase.regionserver.kerberos.principal = hbase/b@B\n";
    assert_eq!(kerberos(&format!("{without}{second}")).region_server_principal, "hbase/b@B");
    let both = kerberos(&format!("{KERBEROS}{second}hbase.master.kerberos.principal = m/_HOST\n"));
    assert_eq!(both.region_server_principal, "hbase/_HOST@LAB.TEST");
    assert_eq!(both.master_principal.as_deref(), Some("m/_HOST"));
    for wrong in ["a b", "@R", "a@", "a/@R", "/a", "a@b@c"] {
        check_refused(
            &format!("{KERBEROS}hbase.master.kerberos.principal = {wrong}\n"),
            &["hbase.master.kerberos.principal", "expected a principal"],
        );
    }
}

#[test]
fn protections_are_words_or_a_list() {
    let of =
        |value: &str| kerberos(&format!("{KERBEROS}hbase.rpc.protection = {value}\n")).protections;
    assert_eq!(kerberos(KERBEROS).protections, [Protection::Authentication]);
    assert_eq!(of("Integrity"), [Protection::Integrity]);
    assert_eq!(of("privacy, authentication"), [Protection::Privacy, Protection::Authentication]);
    check_refused(
        &format!("{KERBEROS}hbase.rpc.protection = auth-conf\n"),
        &["hbase.rpc.protection", "\"auth-conf\"", "authentication, integrity or privacy", "list"],
    );
}

#[test]
fn other_kinds_are_refused() {
    let of = |kind: &str| KERBEROS.replace("= kerberos", &format!("= {kind}"));
    check_refused(
        &of("org.example.MyProvider"),
        &[
            "hbase.security.authentication",
            "class org.example.MyProvider",
            "not a Java program",
            "kerberos",
        ],
    );
    check_refused(&of("ldap"), &["expected simple, kerberos or token"]);
    assert_eq!(kerberos(&of("KERBEROS")), kerberos(KERBEROS));
}

#[test]
fn passwords_are_refused_with_kerberos() {
    let password = "hbase.regionserver.kerberos.password = s3cret\n";
    check_refused(
        &format!("{KERBEROS}{password}"),
        &["hbase.regionserver.kerberos.password", "keytab"],
    );
    let error = connection(&format!("{KERBEROS}{password}")).map(|_| ()).unwrap_err();
    assert!(!error.contains("s3cret"), "{error}");
    assert!(connection(&format!("{QUORUM}{password}")).is_ok());
}

#[test]
fn a_keytab_needs_no_jaas_file() {
    let of = |lines: &str| kerberos(&format!("{KERBEROS}{lines}")).login;
    let file = "hbase.client.keytab.file = keys/tsdb.keytab\n";
    assert_eq!(of(file), keytab("keys/tsdb.keytab", None));
    assert_eq!(
        of(&format!("{file}hbase.client.keytab.principal = a@B\n")),
        keytab("keys/tsdb.keytab", Some("a@B"))
    );
    assert_eq!(of(""), KerberosLogin::Cache { file: None }, "the default cache");
    let principal = "hbase.client.keytab.principal = tsdb/_HOST@R\n";
    check_refused(
        &format!("{KERBEROS}{principal}"),
        &["hbase.client.keytab.principal", "hbase.client.keytab.file"],
    );
    check_refused(
        &format!("{KERBEROS}{file}{principal}"),
        &["hbase.client.keytab.principal", "_HOST"],
    );
}

#[test]
fn own_keytabs_come_before_a_jaas_file_and_that_before_the_site_file() {
    let files = Files::new();
    let site = files.site(&[("hbase.client.keytab.file", "/site.keytab")]);
    assert_eq!(kerberos(&format!("{KERBEROS}{site}")).login, keytab("/site.keytab", None));
    let jaas = files.jaas("Client", "useKeyTab=true keyTab=\"/jaas.keytab\"");
    assert_eq!(kerberos(&format!("{KERBEROS}{site}{jaas}")).login, keytab("/jaas.keytab", None));
    let own = "hbase.client.keytab.file = /own.keytab\n";
    assert_eq!(
        kerberos(&format!("{KERBEROS}{site}{jaas}{own}")).login,
        keytab("/own.keytab", None)
    );
}

#[test]
fn logins_of_a_jaas_file() {
    let files = Files::new();
    let of =
        |options: &str| kerberos(&format!("{KERBEROS}{}", files.jaas("Client", options))).login;
    let home = std::env::var("HOME").unwrap();
    assert_eq!(of("useKeyTab=TRUE keyTab=\"${user.home}/a\""), keytab(&format!("{home}/a"), None));
    assert_eq!(
        of("useKeyTab=true useTicketCache=true keyTab=\"FILE:a\" principal=\"*\""),
        keytab("a", None)
    );
    assert_eq!(of("useTicketCache=true"), KerberosLogin::Cache { file: None });
    let cache = KerberosLogin::Cache { file: Some("/tmp/cc".into()) };
    assert_eq!(of("useTicketCache=true ticketCache=\"/tmp/cc\" renewTGT=true"), cache);
    for (options, expected) in [
        ("useKeyTab=true", "useKeyTab needs keyTab"),
        ("keyTab=\"/a\"", "expected useKeyTab=true with keyTab"),
        ("useKeyTab=true keyTab=a principal=\"a/_HOST@R\"", "_HOST is not replaced"),
    ] {
        let text = format!("{KERBEROS}{}", files.jaas("Client", options));
        check_refused(
            &text,
            &["java.security.auth.login.config", "jaas.conf line 2: section Client", expected],
        );
    }
}

#[test]
fn sections_of_a_jaas_file_have_names() {
    let files = Files::new();
    let options = "useKeyTab=true keyTab=\"/a\"";
    let jaas = files.jaas("TSDB", options);
    check_refused(&format!("{KERBEROS}{jaas}"), &["jaas.conf has no section Client; it has TSDB"]);
    for key in ["hbase.sasl.clientconfig", "zookeeper.sasl.clientconfig"] {
        let found = kerberos(&format!("{KERBEROS}{jaas}{key} = TSDB\n"));
        assert_eq!(found.login, keytab("/a", None), "{key}");
    }
    check_refused(
        &format!(
            "{KERBEROS}{jaas}hbase.sasl.clientconfig = X\nzookeeper.sasl.clientconfig = TSDB\n"
        ),
        &["no section X"],
    );
    let missing = "java.security.auth.login.config = no/such/jaas.conf\n";
    check_refused(
        &format!("{KERBEROS}{missing}"),
        &["cannot read no/such/jaas.conf", "No such file"],
    );
    assert!(connection(&format!("{QUORUM}{missing}")).is_ok(), "ignored without the switch");
    check_refused(&format!("{QUORUM}{missing}zookeeper.sasl.client = true\n"), &["cannot read"]);
}

#[test]
fn tokens_are_files() {
    let token = KERBEROS.replace("= kerberos", "= token");
    check_refused(&token, &["hadoop.token.files", "delegation token"]);
    let found = authentication(&format!(
        "{token}hadoop.token.files = /t\nhbase.rpc.protection = privacy\n"
    ));
    let expected = TokenConfig { file: "/t".into(), protections: vec![Protection::Privacy] };
    assert_eq!(found, Authentication::Token(expected));
    check_refused(&format!("{token}hadoop.token.files = /a,/b\n"), &["expected a single file"]);
    let mut config = Config::default();
    config.add_file(Path::new("opentsdb.conf"), token.as_bytes()).unwrap();
    config.add_environment([("HADOOP_TOKEN_FILE_LOCATION".to_owned(), "/e".to_owned())]);
    let keys = ClientKeys::load(&config).unwrap();
    assert_eq!(super::token(&keys).unwrap().file, Path::new("/e"));
}

#[test]
fn servers_without_security_are_accepted_only_on_request() {
    assert!(!connection(KERBEROS).unwrap().security.allow_simple_fallback);
    let on = "hbase.ipc.client.fallback-to-simple-auth-allowed = true\n";
    assert!(connection(&format!("{KERBEROS}{on}")).unwrap().security.allow_simple_fallback);
}

#[test]
fn flags_of_the_jvm_are_keys() {
    let files = Files::new();
    let jaas = files.jaas("Client", "useKeyTab=true keyTab=\"/a\"");
    let path = jaas.trim().rsplit(' ').next().unwrap();
    let flags = format!(
        "-Xmx1g -Djava.security.auth.login.config={path}  -Djava.security.krb5.conf=/k.conf -Dhbase.rpc.protection=privacy -Dx"
    );
    let mut config = Config::default();
    config.add_file(Path::new("opentsdb.conf"), KERBEROS.as_bytes()).unwrap();
    config.add_environment([
        ("JAVA_SECURITY_KRB5_CONF".to_owned(), "/own.conf".to_owned()),
        ("JVMARGS".to_owned(), flags),
    ]);
    assert_eq!(config.text("java.security.auth.login.config"), Some(path));
    assert_eq!(config.text("java.security.krb5.conf"), Some("/own.conf"));
    assert!(!config.is_set("hbase.rpc.protection"), "only keys that OpenTSDB takes from the JVM");
    let found = crate::config::settings::hbase::connection(&config).unwrap();
    assert_eq!(found.krb5_conf.as_deref(), Some(Path::new("/own.conf")));
    let Authentication::Kerberos(kerberos) = found.security.authentication else {
        panic!("no Kerberos")
    };
    assert_eq!(kerberos.login, keytab("/a", None));
}

#[test]
fn reverse_lookups_cannot_be_turned_on() {
    let key = all_keys::find("hbase.unsafe.client.kerberos.hostname.disable.reversedns").unwrap();
    assert!(matches!(key.effect, KeyEffect::None(_)));
    assert!(connection(&format!("{KERBEROS}{} = false\n", key.name)).is_ok());
}
