#![expect(clippy::unwrap_used, reason = "tests")]

use std::{fmt::Write as _, fs};

use proptest::prelude::*;

use super::*;

fn site(text: &str) -> Result<SiteProperties, String> {
    let mut site = SiteProperties::default();
    site.add(Path::new("hbase-site.xml"), text).map_err(|error| error.to_string())?;
    Ok(site)
}

fn no_variables(_: &str) -> Option<String> {
    None
}

#[track_caller]
fn value(site: &SiteProperties, name: &str) -> Option<String> {
    site.get(name, &no_variables).unwrap().map(|property| property.value)
}

/// A file as vendors hand it out.
const VENDOR: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<?xml-stylesheet type="text/xsl" href="configuration.xsl"?>
<!-- Client configuration
     of two lines -->
<configuration>
  <property>
    <name> hbase.zookeeper.quorum </name>
    <value>
      zk1,zk2<!-- not zk3 -->,zk4
    </value>
    <description>a &lt;quorum&gt;</description>
  </property>
  <property><name>hbase.rootdir</name><value>${fs.defaultFS}/hbase</value><final>true</final></property>
  <property><name>fs.defaultFS</name><value>hdfs://nn &amp; &#x6d;ore</value></property>
  <property name="as.attribute" value="yes" final="true"/>
  <property><name>cdata</name><value><![CDATA[a<b]]></value></property>
  <property><name>empty</name><value></value></property>
  <property><name>no.value</name></property>
  <property><value>no name</value></property>
  <configuration><property><name>nested</name><value>1</value></property></configuration>
  <unknown/>
</configuration>
"#;

#[test]
fn the_files_of_vendors_are_read_as_they_are() {
    let site = site(VENDOR).unwrap();
    for (name, expected) in [
        ("hbase.zookeeper.quorum", Some("zk1,zk2,zk4")),
        ("hbase.rootdir", Some("hdfs://nn & more/hbase")),
        ("as.attribute", Some("yes")),
        ("cdata", Some("a<b")),
        ("empty", None),
        ("no.value", None),
        ("nested", Some("1")),
        ("absent", None),
    ] {
        assert_eq!(value(&site, name).as_deref(), expected, "{name}");
    }
    let rootdir = site.get("hbase.rootdir", &no_variables).unwrap().unwrap();
    assert_eq!((rootdir.path.to_str(), rootdir.line), (Some("hbase-site.xml"), 13));
}

#[test]
fn final_properties_are_not_overridden() {
    let property = |name: &str, value: &str, more: &str| {
        format!("<property><name>{name}</name><value>{value}</value>{more}</property>")
    };
    let file = |properties: &str| format!("<configuration>{properties}</configuration>");
    let mut site = SiteProperties::default();
    let first = property("a", "1", "<final>true</final>") + &property("b", "1", "");
    site.add(Path::new("core-site.xml"), &file(&first)).unwrap();
    let second = property("a", "2", "") + &property("b", "2", "") + &property("b", "3", "");
    site.add(Path::new("hbase-site.xml"), &file(&second)).unwrap();
    assert_eq!(value(&site, "a").as_deref(), Some("1"));
    assert_eq!(value(&site, "b").as_deref(), Some("3"));
    assert_eq!(site.get("a", &no_variables).unwrap().unwrap().path, Path::new("core-site.xml"));
}

#[test]
fn a_directory_has_both_files() {
    let directory = tempfile::tempdir().unwrap();
    let read = || SiteProperties::read(directory.path()).map_err(|error| error.to_string());
    assert!(read().unwrap_err().contains("has no hbase-site.xml"));
    let write = |name: &str, property: &str, value: &str| {
        let text = format!(
            "<configuration><property><name>{property}</name><value>{value}</value></property></configuration>"
        );
        fs::write(directory.path().join(name), text).unwrap();
    };
    write("hbase-site.xml", "a", "${b}");
    assert!(read().unwrap().get("a", &no_variables).unwrap_err().to_string().contains("${b}"));
    write("core-site.xml", "b", "2");
    let site = read().unwrap();
    assert_eq!(value(&site, "a").as_deref(), Some("2"));
    assert_eq!(site.files().len(), 2);
    let file = SiteProperties::read(&directory.path().join("core-site.xml")).unwrap();
    assert_eq!(value(&file, "b").as_deref(), Some("2"));
    assert!(!format!("{site:?}").contains("${b}"), "values may be passwords");
}

#[test]
fn errors_name_line_and_expectation() {
    let xinclude = "<configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\">\n\
                    <xi:include href=\"other.xml\"/></configuration>";
    for (text, expected) in [
        ("", "line 1: the document does not have a root node"),
        ("zk1,zk2\n", "expected XML, as Hadoop's configuration files are"),
        ("<configuration>\n<property>\n</configuration>", "line 3: expected 'property' tag"),
        ("\n<html/>", "line 2: expected the element <configuration>, found <html>"),
        (xinclude, "line 2: includes \"other.xml\" (XInclude), which is not supported"),
        ("<!DOCTYPE a [<!ENTITY x SYSTEM \"f\">]>\n<configuration>&x;</configuration>", "line 2: "),
    ] {
        let error = site(text).unwrap_err();
        assert!(error.starts_with("hbase-site.xml line "), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    let endless =
        "<configuration>\n<property><name>a</name><value>${a}</value></property></configuration>";
    let error = site(endless).unwrap().get("a", &no_variables).unwrap_err().to_string();
    assert!(error.contains("hbase-site.xml line 2: a needs more than 20"), "{error}");
}

#[test]
fn entities_of_the_file_itself_are_replaced_within_bounds() {
    let entity = "<!DOCTYPE configuration [<!ENTITY zk \"zk1:2181\">]>\n\
                  <configuration><property><name>q</name><value>&zk;,x</value></property></configuration>";
    assert_eq!(value(&site(entity).unwrap(), "q").as_deref(), Some("zk1:2181,x"));
    let mut bomb = "<!DOCTYPE configuration [<!ENTITY a0 \"aaaaaaaaaa\">".to_owned();
    for level in 1..12 {
        let references = format!("&a{};", level - 1).repeat(10);
        let _ = write!(bomb, "<!ENTITY a{level} \"{references}\">");
    }
    bomb += "]><configuration>&a11;</configuration>";
    assert!(site(&bomb).unwrap_err().contains("entity reference loop"));
}

#[test]
fn deep_and_large_files_end_with_an_error() {
    let deep = format!("<configuration>{}", "<property>".repeat(300_000));
    assert!(site(&deep).unwrap_err().contains("nodes limit"));
    let wide = format!("<configuration>{}</configuration>", "<property/>".repeat(300_000));
    assert!(site(&wide).unwrap_err().contains("nodes limit"));
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        let _ = site(&text);
    }

    #[test]
    fn damaged_files_never_panic(at in 0..VENDOR.len(), length in 0..40_usize, with in "[<>&;/\"$\\{\\}a]{0,4}") {
        let end = (at + length).min(VENDOR.len());
        let damaged = format!("{}{with}{}", &VENDOR[..at], &VENDOR[end..]);
        if let Ok(site) = site(&damaged) {
            for name in ["hbase.zookeeper.quorum", "hbase.rootdir", "nested"] {
                let _ = site.get(name, &no_variables);
            }
        }
    }
}
