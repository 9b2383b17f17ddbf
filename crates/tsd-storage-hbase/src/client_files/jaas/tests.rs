#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<JaasFile, String> {
    JaasFile::parse(Path::new("jaas.conf"), text).map_err(|error| error.to_string())
}

fn variables(name: &str) -> Option<String> {
    (name == "user.home").then(|| "/home/tsdb".to_owned())
}

/// A file with what Java allows.
const FILE: &str = r#"/* Client of HBase
   and ZooKeeper */
Client { // the default section
  com.sun.security.auth.module.Krb5LoginModule REQUIRED
  useKeyTab=true
  keyTab="${user.home}${/}tsdb.keytab"
  useTicketCache = "FALSE"
  principal='tsdb/"host"\u0040x';
};

"Server.A" {
  org.example.OtherModule optional;
  com.ibm.security.auth.module.Krb5LoginModule sufficient
    keyTab=/etc/a.keytab principal=a@R/*; */ debug=true;
  com.sun.security.auth.module.Krb5LoginModule requisite keyTab="second";
};
Empty { };
"#;

#[test]
fn sections_have_modules_with_options() {
    let file = parse(FILE).unwrap();
    let client = file.section("Client").unwrap();
    let module = file.kerberos(client).unwrap();
    assert_eq!((client.line, module.line, module.flag.as_str()), (3, 4, "required"));
    let option = |name: &str| module.option(name, &variables);
    assert_eq!(option("keyTab").as_deref(), Some("/home/tsdb/tsdb.keytab"));
    assert_eq!(option("principal").as_deref(), Some("tsdb/\"host\"u0040x"));
    assert_eq!(option("absent"), None);
    assert!(module.is_true("useKeyTab") && !module.is_true("useTicketCache"));
}

#[test]
fn the_first_kerberos_module_of_a_section_counts() {
    let file = parse(FILE).unwrap();
    let server = file.section("Server.A").unwrap();
    assert_eq!(server.modules.len(), 3);
    let module = file.kerberos(server).unwrap();
    assert_eq!(module.option("keyTab", &variables).as_deref(), Some("/etc/a.keytab"));
    assert_eq!(module.option("principal", &variables).as_deref(), Some("a@R"));
    assert!(module.is_true("debug"));
}

#[test]
fn missing_sections_and_modules_are_named() {
    let file = parse(FILE).unwrap();
    let error = file.section("client").unwrap_err().to_string();
    assert_eq!(error, "jaas.conf has no section client; it has Client, Server.A, Empty");
    let error = file.kerberos(file.section("Empty").unwrap()).unwrap_err().to_string();
    assert_eq!(error, "jaas.conf line 17: section Empty has no module; expected a Krb5LoginModule");
    let digest = parse(
        "Client { org.apache.zookeeper.server.auth.DigestLoginModule required password=\"x\"; };",
    );
    let digest = digest.unwrap();
    let error = digest.kerberos(digest.section("Client").unwrap()).unwrap_err().to_string();
    assert!(error.contains("DigestLoginModule; expected a Krb5LoginModule"), "{error}");
    assert!(!format!("{digest:?}").contains("\"x\""), "options may be passwords");
    let error = parse("").unwrap().section("Client").unwrap_err().to_string();
    assert!(error.ends_with("it has no section"), "{error}");
}

#[test]
fn errors_name_line_and_expectation() {
    for (text, expected) in [
        ("Client", "line 1: expected { after the name of a section, found the end of the file"),
        ("Client\nx", "line 2: expected { after the name of a section, found x"),
        ("{", "line 1: expected the name of a section, found {"),
        ("A {\n B;", "line 2: expected required, requisite, sufficient, optional after B, found ;"),
        (
            "A {\n B maybe;",
            "line 2: expected required, requisite, sufficient, optional after B, found maybe",
        ),
        ("A { B required\nk };", "line 2: expected = after the option k, found }"),
        ("A { B required k=;", "line 1: expected a value of k, found ;"),
        (
            "A { B required k=1\n}",
            "line 2: expected an option, or ; after the last option, found }",
        ),
        ("A { B required; }\nC", "line 2: expected ; after the } of a section, found C"),
        (
            "A { B required; }",
            "line 1: expected ; after the } of a section, found the end of the file",
        ),
        ("A { = };", "line 1: expected the class of a login module, or }, found ="),
        ("A { };\nA { };", "line 2: section A exists already in line 1"),
        ("A { B required\nk=\"open;\n};", "line 2: expected \" at the end of a value"),
        ("A { };\n/* open\n", "line 2: expected */ at the end of this comment"),
    ] {
        let error = parse(text).map(|_| ()).unwrap_err();
        assert_eq!(error, format!("jaas.conf {expected}"), "{text}");
    }
}

#[test]
fn quoted_texts_have_the_escapes_of_java() {
    let file = parse(r#"A { B required a="\"\\\t\1012\47\x" b='\400'; };"#).unwrap();
    let module = file.section("A").unwrap().modules.first().unwrap();
    let option = |name: &str| module.option(name, &variables);
    assert_eq!(option("a").as_deref(), Some("\"\\\tA2'x"));
    assert_eq!(option("b").as_deref(), Some(" 0"));
}

#[test]
fn unknown_variables_stay() {
    let file = parse(r#"A { B required a="${no}/${user.home}/${"; };"#).unwrap();
    let module = file.section("A").unwrap().modules.first().unwrap();
    assert_eq!(module.option("a", &variables).as_deref(), Some("${no}//home/tsdb/${"));
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn damaged_files_never_panic(at in 0..FILE.len(), length in 0..40_usize, with in "[{};=/*\"'\\\\\\na]{0,4}") {
        let end = (at + length).min(FILE.len());
        let damaged = format!("{}{with}{}", &FILE[..at], &FILE[end..]);
        if let Ok(file) = parse(&damaged)
            && let Ok(section) = file.section("Client")
            && let Ok(module) = file.kerberos(section)
        {
            let _ = module.option("keyTab", &variables);
        }
    }
}
