//! Consistency of the compose file, images and configurations for containers. Runs no container.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use yaml_rust2::{Yaml, YamlLoader};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(file(path)).unwrap()
}

/// A key of a service, or of the mapping merged by `<<`, which the parser does not resolve.
fn key<'a>(service: &'a Yaml, key: &str) -> &'a Yaml {
    let own = &service[key];
    if own.is_badvalue() { &service["<<"][key] } else { own }
}

fn names(yaml: &Yaml) -> HashSet<&str> {
    yaml.as_hash().unwrap().keys().map(|key| key.as_str().unwrap()).collect()
}

#[test]
fn the_compose_file_refers_to_existing_files_services_and_volumes() {
    let documents = YamlLoader::load_from_str(&read("compose.yaml")).unwrap();
    let compose = &documents[0];
    let services = &compose["services"];
    let volumes = names(&compose["volumes"]);
    assert_eq!(
        names(services),
        HashSet::from(["zookeeper", "master", "rs0", "rs1", "tables", "tsd0", "tsd1"])
    );
    for (name, service) in services.as_hash().unwrap() {
        let name = name.as_str().unwrap();
        let build = key(service, "build");
        let context = build["context"].as_str().unwrap();
        let dockerfile = build["dockerfile"].as_str().unwrap();
        assert!(file(context).join(dockerfile).is_file(), "{name}: {dockerfile}");
        let needed = key(service, "depends_on");
        let needed: Vec<_> = match needed.as_vec() {
            Some(needed) => needed.iter().map(|other| other.as_str().unwrap()).collect(),
            None if needed.is_badvalue() => Vec::new(),
            None => names(needed).into_iter().collect(),
        };
        for other in needed {
            assert!(!services[other].is_badvalue(), "{name} needs {other}");
        }
        for volume in key(service, "volumes").as_vec().unwrap() {
            let (source, _) = volume.as_str().unwrap().split_once(':').unwrap();
            let exists = if source.starts_with('.') {
                file(source).is_dir()
            } else {
                volumes.contains(source)
            };
            assert!(exists, "{name} mounts {source}");
        }
        if let Some(hostname) = key(service, "hostname").as_str() {
            assert_eq!(hostname, name);
        }
    }
}

#[test]
fn containers_run_the_same_classes_as_the_cluster_command() {
    let documents = YamlLoader::load_from_str(&read("compose.yaml")).unwrap();
    let here = read("src/cluster/start.rs");
    for service in ["zookeeper", "master", "rs0", "rs1"] {
        let class = documents[0]["services"][service]["command"][0].as_str().unwrap();
        assert!(here.contains(&format!("\"{class}\"")), "{class}");
    }
    let flags = read("src/java.rs");
    for word in read("image/run-java.sh").split_whitespace().filter(|word| word.contains("/java")) {
        assert!(flags.contains(word), "{word}");
    }
}

#[test]
fn properties_of_hbase_are_well_formed_and_unique() {
    let site = read("config/hbase/hbase-site.xml");
    let mut lines = site.lines().map(str::trim).filter(|line| !line.starts_with("<!--"));
    assert_eq!(lines.next(), Some("<?xml version=\"1.0\"?>"));
    assert_eq!(lines.next(), Some("<configuration>"));
    let mut seen = HashSet::new();
    for line in lines.by_ref().take_while(|line| *line != "</configuration>") {
        let inner = line.strip_prefix("<property><name>").unwrap();
        let inner = inner.strip_suffix("</value></property>").unwrap();
        let (name, value) = inner.split_once("</name><value>").unwrap();
        assert!(!value.contains(['<', '>', '&']) && !name.contains(['<', '>', '&']), "{line}");
        assert!(seen.insert(name), "{name} twice");
    }
    assert_eq!(lines.next(), None);
    for comment in site.lines().map(str::trim).filter(|line| line.starts_with("<!--")) {
        assert!(comment.ends_with("-->") && comment.matches("--").count() == 2, "{comment}");
    }
}

#[test]
fn zookeeper_has_its_required_settings() {
    let text = read("config/hbase/zoo.cfg");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let settings: Vec<_> = lines.map(|line| line.split_once('=').unwrap()).collect();
    let value = |name| settings.iter().find(|(other, _)| *other == name).unwrap().1;
    assert_eq!((value("dataDir"), value("clientPort")), ("/data/zookeeper", "2181"));
    value("tickTime").parse::<u32>().unwrap();
}

#[test]
fn settings_of_the_daemon_exist() {
    let known = read("../crates/tsd-cli/src/config/keys/table.rs");
    let text = read("config/tsdb/opentsdb.conf");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    for line in lines {
        let (name, value) = line.split_once(" = ").unwrap();
        assert!(known.contains(&format!("\"{name}\"")), "{name}");
        assert!(!value.is_empty());
    }
}
